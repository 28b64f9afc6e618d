// Package nn holds the layers that graphs are made of: linear, embedding, norm, rotary positions.
//
// A layer is a struct of parameters that its graph owns (sdk/weights closes them) and a Forward that reads like the
// equation. Where its matrix is packed, a layer runs as a kernel; else it calls the same MLX operations in the same order as
// mlx-lm, so that float32 logits agree to rounding.
//
// Invariants: no layer keeps state between calls; activations keep their dtype; a parameter in float32 under narrower
// activations (a dequantized weight) computes in float32 and returns the activations' dtype.
// Not for: caches and attention over them (sdk/kv), loading (sdk/weights).
package nn
