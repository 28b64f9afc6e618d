//go:build !full

package main

// held are the models that hold the plugin to the contract: each loader, states, experts. Those of paged do it in blocks and with a disk too.
var (
	held  = []string{"qwen3-f32", "qwen3-gguf-q8_0.gguf", "qwen35-moe-affine4"}
	paged []string
)
