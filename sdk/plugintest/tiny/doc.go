// Package tiny makes small random checkpoints: whole models of a few hundred kilobytes whose logits an oracle can compute
// in a second, one for each switch of a graph that must be right.
//
// Every weight is a function of the checkpoint's seed and the tensor's name, in plain float64 sums, so that every platform
// writes the same bytes; goldens made from them stay valid until a recipe here changes.
//
// Invariants: native-free; nothing random is left to the caller. Not for: models that say anything.
package tiny
