// Package quant holds the facts of stored weight formats: how a row of codes becomes float32, and back where a test needs
// it.
//
// Formats: float32, float16 and bfloat16 rows; MLX affine groups of 2, 3, 4, 5, 6 and 8 bits; the GGUF blocks Q4_0, Q4_1
// and Q8_0. Every function works on whole rows, little-endian, without state.
//
// Invariants: native-free; lengths are checked by the caller against the header once, so a wrong length here is a defect
// and panics by slice bounds; no fused multiply-add, so the values are the same on every platform.
// Not for: reading files (sdk/artifact), deciding which format a tensor has (sdk/weights).
package quant
