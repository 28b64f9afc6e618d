// Package qwen3 is the Qwen 3 decoder: pre-norm blocks of grouped-query attention, whose queries and keys are normalised head by
// head before they rotate, and a SwiGLU MLP or, in some layers, a mixture of them.
//
// It reads top-down: Config (config.go), the parameters and their names in files (weights.go), a block (block.go), the forward
// (model.go). The oracle is mlx-lm 0.32.2, models/qwen3.py and qwen3_moe.py: same operations,
// same order.
//
// Covered: tied and untied heads, head_dim other than hidden/heads, the rotary kinds of sdk/nn; safetensors from Hugging Face and
// MLX (dense, affine with overrides, small floats) and, of dense models, GGUF. The last hidden state of a dense model also serves as
// an embedding of the text.
package qwen3
