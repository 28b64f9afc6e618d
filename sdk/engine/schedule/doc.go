// Package schedule decides which requests a batching engine computes next. It knows rows, tokens and blocks of cache, and nothing
// of models: no native code, no goroutine, no clock of its own.
//
// A row is one request. It waits in a fair queue, is admitted when a slot and cache blocks for its tokens are free, and then has
// tokens that are not in its cache yet: one (it decodes) or more (it prefills). Next says what the next forward holds: one token
// of every row that decodes, and at most one chunk of prefill, so that a running row waits one chunk at most.
//
// Invariants: no more rows than slots and no more blocks than there are, ever; a waiting row is overtaken only by a better
// priority, and not for ever (Aging); when blocks run out the row admitted last is put back, never the oldest, so that some row
// always ends; after a failed forward its rows are tried alone, one after another, and only one that fails alone is condemned.
// A Scheduler belongs to one goroutine.
// Not for: caches, sampling, delivery (sdk/engine).
package schedule
