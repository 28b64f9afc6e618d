package tiny

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// qwenRecipe is one checkpoint of Qwen 3: what its config says beyond the base, and how it is stored.
type qwenRecipe struct {
	name   string
	config map[string]any
	store  func(c Checkpoint, path string) error
}

// Qwen3 lists the checkpoints of the qwen3 graph, or those of the given names.
func Qwen3(names ...string) []Checkpoint {
	return qwenCheckpoints(names, qwen3Config, []qwenRecipe{
		{"qwen3-f32", nil, safetensors("F32")},
		{"qwen3-untied-bf16", map[string]any{"tie_word_embeddings": false}, safetensors("BF16")},
		// As transformers 5 writes it, with a head that is copied though it is tied, and other widths.
		{"qwen3-wide", map[string]any{
			"hidden_size": 96, "head_dim": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 160,
			"rope_theta": nil, "rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 5000.0},
		}, withTiedHead},
		{"qwen3-yarn", map[string]any{
			"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
		}, safetensors("F32")},
		{"qwen3-affine4", quantized(32, 4, map[string]any{
			"model.layers.1.mlp.down_proj":    map[string]any{"group_size": 64, "bits": 8},
			"model.layers.0.self_attn.v_proj": false,
		}, nil), quantizedStore},
		{"qwen3-affine-mixed", quantized(64, 6, map[string]any{
			"model.embed_tokens":              map[string]any{"group_size": 32, "bits": 8},
			"model.layers.0.self_attn.q_proj": map[string]any{"group_size": 32, "bits": 2},
			"model.layers.1.self_attn.o_proj": map[string]any{"group_size": 128, "bits": 3},
			"model.layers.1.mlp.gate_proj":    map[string]any{"group_size": 32, "bits": 5},
		}, map[string]any{"tie_word_embeddings": false}), quantizedStore},
		// As embedding models are published: names without "model.", and room for the byte tokenizer.
		{"qwen3-embedding", map[string]any{"vocab_size": 272}, withoutPrefix},
		{"qwen3-gguf-f32.gguf", nil, gguf("F32")},
		{"qwen3-gguf-q8_0.gguf", map[string]any{"tie_word_embeddings": false}, gguf("Q8_0")},
		{"qwen3-gguf-q4_1.gguf", nil, gguf("Q4_1")},
	})
}

func qwenCheckpoints(names []string, base func() map[string]any, recipes []qwenRecipe) []Checkpoint {
	var out []Checkpoint
	for _, r := range recipes {
		if len(names) > 0 && !slices.Contains(names, r.name) {
			continue
		}
		config := base()
		maps.Copy(config, r.config)
		maps.DeleteFunc(config, func(_ string, v any) bool { return v == nil })
		out = append(out, Checkpoint{Name: r.name, Config: config, Tensors: qwenTensors(config), store: r.store})
	}
	return out
}

func qwen3Config() map[string]any {
	return map[string]any{
		"model_type": "qwen3", "architectures": []string{"Qwen3ForCausalLM"},
		"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
		"head_dim": 32, "vocab_size": 256, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
		"tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
	}
}

// qwenTensors draws the weights under their Hugging Face names, as llamaTensors does.
func qwenTensors(config map[string]any) []Tensor {
	const seed = 20261
	size := func(key string) int { return config[key].(int) }
	hidden, inter, dim := size("hidden_size"), size("intermediate_size"), size("head_dim")
	heads, kvHeads := size("num_attention_heads"), size("num_key_value_heads")
	var out []Tensor
	add := func(name string, mean, deviation float64, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		out = append(out, Tensor{name + ".weight", shape, gaussian(seed, name, n, mean, deviation)})
	}
	linear := func(path string, rows, cols int) { add(path, 0, 1/math.Sqrt(float64(cols)), rows, cols) }

	add("model.embed_tokens", 0, 0.1, size("vocab_size"), hidden)
	for i := range size("num_hidden_layers") {
		layer := fmt.Sprintf("model.layers.%d.", i)
		add(layer+"input_layernorm", 1, 0.1, hidden)
		linear(layer+"self_attn.q_proj", heads*dim, hidden)
		linear(layer+"self_attn.k_proj", kvHeads*dim, hidden)
		linear(layer+"self_attn.v_proj", kvHeads*dim, hidden)
		linear(layer+"self_attn.o_proj", hidden, heads*dim)
		// Far enough from 1 and from each other that swapped or forgotten ones show.
		add(layer+"self_attn.q_norm", 1.2, 0.3, dim)
		add(layer+"self_attn.k_norm", 0.8, 0.3, dim)
		add(layer+"post_attention_layernorm", 1, 0.1, hidden)
		linear(layer+"mlp.gate_proj", inter, hidden)
		linear(layer+"mlp.up_proj", inter, hidden)
		linear(layer+"mlp.down_proj", hidden, inter)
	}
	add("model.norm", 1, 0.1, hidden)
	if config["tie_word_embeddings"] == false {
		linear("lm_head", size("vocab_size"), hidden)
	}
	return out
}

// withTiedHead stores float32 with a copy of the embedding as the head, as some writers do for tied models.
func withTiedHead(c Checkpoint, dir string) error {
	head := c.Tensors[0]
	head.Name = "lm_head.weight"
	c.Tensors = append(slices.Clone(c.Tensors), head)
	return safetensors("F32")(c, dir)
}

// withoutPrefix stores the decoder alone, whose names begin without "model.".
func withoutPrefix(c Checkpoint, dir string) error {
	tensors := slices.Clone(c.Tensors)
	for i := range tensors {
		tensors[i].Name = strings.TrimPrefix(tensors[i].Name, "model.")
	}
	c.Tensors = tensors
	return safetensors("F32")(c, dir)
}
