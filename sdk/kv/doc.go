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
//
// A layer may keep arrays of fixed shape instead (Spec.State, state.go): the state of a recurrence, which GatedDelta (delta.go)
// computes. Such arrays are shared with runs and never written while they are.
//
// How a layer keeps its past is behind one seam, storage (storage.go): a Cache counts tokens and asks each layer's storage for all
// else, so that layers of one cache may keep theirs differently. To add a storage: write a type that is a storage, and attended if
// it keeps keys and values; have Spec.storage make it where the Spec says so; count it in Spec.BytesPerToken. A layer that is not
// attended over reaches its own through Pass.Segments. A storage that forgets says with usable from where a sequence could go on:
// a run of tokens holds of each layer a part, which may be empty.
//
// Not for: which requests share a cache (sdk/engine), how positions rotate (sdk/nn).
package kv
