// Package engine runs token loops: it turns a model's forward into generated or scored tokens.
//
// A Blueprint states a model's Layout, and its Model computes Forward and Unembed; the engine owns caches, chunked prefill, the decode loop one
// step ahead, samplers, log probabilities, cancellation and counters. Noise is the sampling noise of every family.
//
// One goroutine, the loop, owns the scheduler (schedule), the rows and all that is in flight; requests tell it things and read from
// mailboxes, so that nobody waits for a slow host. docs/engine.md describes a step.
//
// Invariants: a token is argmax(logits/T + noise) with ties to the lowest id, where noise is a pure function of (seed,
// choice, position, token id); what a request gets does not depend on the prefill chunk nor, on the kernels, on other
// requests; after a failed evaluation its rows are tried alone, and only one that fails alone ends.
// Not for: text (the host detokenizes and applies stop strings), memory plans (sdk/weights and the family).
package engine
