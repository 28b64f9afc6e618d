// Package qwen35 is the text decoder of Qwen 3.5: three of four layers are gated delta networks, a recurrence behind a short
// convolution, the fourth attends with gated outputs and rotary positions on a part of each head; each is followed by a SwiGLU MLP or, in
// Qwen 3.5 MoE, by a mixture of routed experts and a shared one.
//
// It reads top-down: Config (config.go), the parameters and their names in files (weights.go), a block (block.go, mlp.go), the forward
// (model.go). The recurrence itself is sdk/kv's GatedDelta: a kernel on the CPU, else MLX's operations. The oracle is mlx-lm 0.32.2,
// models/qwen3_5.py: same operations, same order.
//
// Covered: tied and untied heads, biases of attention, other intervals, widths and convolutions; Hugging Face's layout and MLX's,
// dense and quantized, experts stacked, fused or one by one; heads for multi-token prediction (mtp.go, head.go), bundled or in a folder of
// their own, as drafters (drafter.go). Vision towers are left in the file.
package qwen35
