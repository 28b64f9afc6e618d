//go:build full

package main

var (
	held = []string{
		"qwen3-f32", "qwen3-gguf-q8_0.gguf", "qwen3-moe-hf", "qwen3-moe-gguf-q4_1.gguf", "qwen35-hf", "qwen35-moe-hf-mtp", "qwen35-moe-affine4",
		"qwen35-gguf-q8_0.gguf", "qwen35-moe-gguf-f32.gguf",
	}
	paged = []string{"qwen3-f32", "qwen3-moe-hf", "qwen35-hf", "qwen35-moe-hf-mtp"}
)
