// Package kv holds the keys and values of the tokens a sequence has seen, and attends over them.
//
// A graph states what each layer needs (Spec) and calls Attend with its projections; how keys are laid out, grown and masked,
// and whether a kernel or a graph of MLX's operations computes, is decided here. A forward (Pass) is ragged: new tokens of
// several sequences lie one after another, a segment each, so that prefill chunks and decode steps share one.
//
// Invariants: a query sees the keys at its own and earlier positions, the last Window of them where the layer has one; what
// Attend returns does not depend on how the tokens before were cut into calls, nor, on the kernels, on the pass's other
// sequences; caches grow in steps of 256 tokens, so that the memory plan can count them. Every array is owned by its Cache:
// Close frees it, on the worker's thread.
// Not for: which requests share a cache (sdk/engine), how positions rotate (sdk/nn).
package kv
