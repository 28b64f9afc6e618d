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

// Qwen3MoE lists the checkpoints of the qwen3-moe graph, or those of the given names.
func Qwen3MoE(names ...string) []Checkpoint {
	return qwenCheckpoints(names, qwen3MoEConfig, []qwenRecipe{
		{"qwen3-moe-hf", map[string]any{"mlp_only_layers": []int{0}}, expertByExpert("F32")},
		{"qwen3-moe-hf-bf16", map[string]any{"tie_word_embeddings": false}, expertByExpert("BF16")},
		{"qwen3-moe-16", map[string]any{"num_experts": 16, "num_experts_per_tok": 4, "norm_topk_prob": false}, safetensors("F32")},
		{"qwen3-moe-64", map[string]any{"num_experts": 64, "num_experts_per_tok": 8, "decoder_sparse_step": 2}, safetensors("F32")},
		// Pairs of experts that the router cannot tell apart, and always picks one of.
		{"qwen3-moe-ties", map[string]any{"num_experts_per_tok": 3}, routerTies},
		// No whole panels: the experts are arrays beside packed matrices.
		{"qwen3-moe-narrow", map[string]any{"moe_intermediate_size": 24}, safetensors("F32")},
		{"qwen3-moe-affine4", quantized(32, 4, map[string]any{
			"model.layers.0.mlp.gate":                 map[string]any{"group_size": 64, "bits": 8},
			"model.layers.1.mlp.gate":                 map[string]any{"group_size": 64, "bits": 8},
			"model.layers.1.mlp.switch_mlp.down_proj": map[string]any{"group_size": 32, "bits": 8},
		}, nil), quantizedStore},
	})
}

func qwen3MoEConfig() map[string]any {
	config := qwen3Config()
	maps.Copy(config, map[string]any{
		"model_type": "qwen3_moe", "architectures": []string{"Qwen3MoeForCausalLM"}, "num_experts": 8, "num_experts_per_tok": 2,
		"moe_intermediate_size": 32, "decoder_sparse_step": 1, "mlp_only_layers": []int{}, "norm_topk_prob": true,
	})
	return config
}

// expertByExpert stores the experts' matrices one by one, as Hugging Face has them.
func expertByExpert(dtype string) func(Checkpoint, string) error {
	return func(c Checkpoint, dir string) error {
		var tensors []Tensor
		for _, t := range c.Tensors {
			tensors = append(tensors, split(t)...)
		}
		c.Tensors = tensors
		return safetensors(dtype)(c, dir)
	}
}

// split is a matrix of each expert, where t is the experts' of a projection.
func split(t Tensor) []Tensor {
	layer, name, stacked := strings.Cut(t.Name, "switch_mlp.")
	if !stacked {
		return []Tensor{t}
	}
	var out []Tensor
	each := t.Shape[1] * t.Shape[2]
	for e := range t.Shape[0] {
		out = append(out, Tensor{fmt.Sprintf("%sexperts.%d.%s", layer, e, name), t.Shape[1:], t.Values[e*each : (e+1)*each]})
	}
	return out
}

// routerTies gives every second expert the router's row of the one before it.
func routerTies(c Checkpoint, dir string) error {
	tensors := slices.Clone(c.Tensors)
	for i, t := range tensors {
		if !strings.HasSuffix(t.Name, "mlp.gate.weight") {
			continue
		}
		values, width := slices.Clone(t.Values), t.Shape[1]
		for e := 0; e+1 < t.Shape[0]; e += 2 {
			copy(values[(e+1)*width:(e+2)*width], values[e*width:(e+1)*width])
		}
		tensors[i].Values = values
	}
	c.Tensors = tensors
	return safetensors("F32")(c, dir)
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
		if qwenSparse(config, i) {
			experts, width := size("num_experts"), size("moe_intermediate_size")
			linear(layer+"mlp.gate", experts, hidden)
			add(layer+"mlp.switch_mlp.gate_proj", 0, 1/math.Sqrt(float64(hidden)), experts, width, hidden)
			add(layer+"mlp.switch_mlp.up_proj", 0, 1/math.Sqrt(float64(hidden)), experts, width, hidden)
			add(layer+"mlp.switch_mlp.down_proj", 0, 1/math.Sqrt(float64(width)), experts, hidden, width)
			continue
		}
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

// qwenSparse is transformers' rule for which layers are mixtures.
func qwenSparse(config map[string]any, layer int) bool {
	step, mixture := config["decoder_sparse_step"].(int)
	return mixture && (layer+1)%step == 0 && !slices.Contains(config["mlp_only_layers"].([]int), layer)
}
