// Package engine runs token loops: it turns a model's forward into generated or scored tokens.
//
// A Model states its Layout and computes Forward and Unembed; the engine owns caches, chunked prefill, the decode loop one
// step ahead, samplers, log probabilities, cancellation and counters. Noise is the sampling noise of every family.
//
// Invariants: a token is argmax(logits/T + noise) with ties to the lowest id, where noise is a pure function of (seed,
// choice, position, token id); what a request gets does not depend on the prefill chunk; an error in an evaluation ends
// the request and frees its cache, never the model.
// Not for: text (the host detokenizes and applies stop strings), memory plans (sdk/weights and the family).
package engine
