package tiny

import "strings"

// Qwen3MoEGGUF lists checkpoints of the qwen3-moe graph as llama.cpp's converter writes them, and beside the one of floats its twin as
// Hugging Face has it. With names only those are drawn.
func Qwen3MoEGGUF(names ...string) []Checkpoint {
	// Rows as wide as the blocks of K-quants.
	wide := map[string]any{"hidden_size": 256, "moe_intermediate_size": 256, "num_experts": 4}
	return qwenCheckpoints(names, qwen3MoEConfig, []qwenRecipe{
		{"qwen3-moe-gguf-f32", nil, expertByExpert("F32")},
		{"qwen3-moe-gguf-f32.gguf", nil, gguf("F32")},
		{"qwen3-moe-gguf-q8_0.gguf", map[string]any{"tie_word_embeddings": false}, mixed(ggufRouted(all("Q8_0")))},
		{"qwen3-moe-gguf-q4_1.gguf", map[string]any{"num_experts": 16, "num_experts_per_tok": 4}, mixed(ggufRouted(all("Q4_1")))},
		{"qwen3-moe-gguf-k.gguf", wide, mixed(ggufRouted(kQuants))},
	})
}

func all(dtype string) func(string) string { return func(string) string { return dtype } }

// ggufRouted leaves routers F32, as llama.cpp does.
func ggufRouted(dtype func(name string) string) func(name string) string {
	return func(name string) string {
		if strings.Contains(name, "ffn_gate_inp") {
			return "F32"
		}
		return dtype(name)
	}
}

// kQuants has a format of its own for each of the projections of experts.
func kQuants(name string) string {
	for part, dtype := range map[string]string{
		"blk.0.ffn_gate_exps": "Q4_K", "blk.0.ffn_up_exps": "Q5_K", "blk.0.ffn_down_exps": "Q6_K",
		"blk.1.ffn_gate_exps": "Q2_K", "blk.1.ffn_up_exps": "Q3_K", "blk.1.ffn_down_exps": "IQ4_XS",
	} {
		if strings.HasPrefix(name, part) {
			return dtype
		}
	}
	return "Q8_0"
}
