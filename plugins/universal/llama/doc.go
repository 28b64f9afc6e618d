// Package llama is the llama decoder: pre-norm blocks of grouped-query attention with rotary positions and a SwiGLU MLP.
//
// It reads top-down: Config (config.go), the parameters and their names in files (weights.go), a block (block.go), the
// forward (model.go). The oracle is mlx-lm 0.32.2, models/llama.py: same operations, same order.
//
// Covered: tied and untied heads, attention and MLP biases, head_dim other than hidden/heads, sliding layers by
// layer_types, rotary kinds default, linear, llama3, yarn and longrope, interleaved rotary pairs; safetensors (dense, MLX
// affine) and GGUF.
package llama
