// Package quant holds the facts of stored weight formats: how a row of codes becomes float32, and back where a test needs
// it.
//
// Formats: float32, float16 and bfloat16 rows; MLX affine groups of 2, 3, 4, 5, 6 and 8 bits; MLX's mxfp4, nvfp4 and mxfp8; the
// GGUF blocks in the table of block.go. Every function works on whole rows, little-endian, without state.
//
// A row is decoded with the bits of its oracle (gguf-py, mx.dequantize), infinite and NaN scales included. It is packed for the
// kernels as codes with scales and biases whose fused product and sum are the same values. Three corners differ: the
// sign of a zero, a group whose scale is not finite, which is NaN throughout where the format centres its codes, and scales
// that no packing holds, which are refused (of MXFP4 2^125 and up).
//
// Invariants: native-free; lengths are checked by the caller against the header once, so a wrong length here is a defect
// and panics by slice bounds; no fused multiply-add, so the values are the same on every platform.
// Not for: reading files (sdk/artifact), deciding which format a tensor has (sdk/weights).
package quant
