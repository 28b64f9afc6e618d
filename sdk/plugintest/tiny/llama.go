package tiny

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/weights/quant"
)

// Shape of every llama checkpoint, unless its recipe says otherwise.
const (
	llamaHidden, llamaInter, llamaVocab = 64, 128, 256
	llamaHeads, llamaKVHeads            = 4, 2
	llamaLayers                         = 4
)

// llamaRecipe is one llama checkpoint: what its config says beyond the base, and how it is stored.
type llamaRecipe struct {
	name   string
	config map[string]any
	store  func(c Checkpoint, path string) error
}

// Llama lists the checkpoints of the llama graph: one for each switch. With names only those are drawn, in their own order.
func Llama(names ...string) []Checkpoint {
	recipes := []llamaRecipe{
		{"llama-f32", nil, safetensors("F32")},
		{"llama-f16", nil, safetensors("F16")},
		{"llama-bf16", nil, safetensors("BF16")},
		{"llama-untied-headdim", map[string]any{"tie_word_embeddings": false, "head_dim": 32}, safetensors("F32")},
		{"llama-bias", map[string]any{"attention_bias": true, "mlp_bias": true}, safetensors("F32")},
		{"llama-traditional", map[string]any{"rope_traditional": true}, safetensors("F32")},
		{"llama-sliding", map[string]any{
			"sliding_window": 8,
			"layer_types":    []string{"sliding_attention", "full_attention", "sliding_attention", "full_attention"},
		}, safetensors("F32")},
		{"llama-rope-linear", rope(map[string]any{"rope_type": "linear", "factor": 4.0}), safetensors("F32")},
		{"llama-rope-llama3", rope(map[string]any{
			"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
			"original_max_position_embeddings": 64,
		}), safetensors("F32")},
		{"llama-rope-yarn", rope(map[string]any{
			"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
		}), safetensors("F32")},
		{"llama-rope-longrope", rope(map[string]any{
			"rope_type": "longrope", "original_max_position_embeddings": 64,
			"short_factor": []float64{1, 1, 1, 1, 1, 1, 1, 1},
			"long_factor":  []float64{1, 1.1, 1.3, 1.8, 2.5, 4, 6, 9},
		}), safetensors("F32")},
		{"llama-affine4", quantized(32, 4, map[string]any{
			"model.layers.1.mlp.down_proj":    map[string]any{"group_size": 64, "bits": 8},
			"model.layers.2.self_attn.v_proj": false,
		}, map[string]any{"tie_word_embeddings": false}), quantizedStore},
		{"llama-affine8", quantized(64, 8, nil, nil), quantizedStore},
		{"llama-affine-mixed", quantized(64, 4, map[string]any{
			"model.layers.0.self_attn.q_proj": map[string]any{"group_size": 32, "bits": 2},
			"model.layers.1.self_attn.o_proj": map[string]any{"group_size": 64, "bits": 3},
			"model.layers.2.mlp.gate_proj":    map[string]any{"group_size": 32, "bits": 5},
			"model.layers.3.mlp.down_proj":    map[string]any{"group_size": 128, "bits": 6},
		}, nil), quantizedStore},
		{"llama-gguf-f32.gguf", nil, gguf("F32")},
		{"llama-gguf-f16.gguf", nil, gguf("F16")},
		{"llama-gguf-bf16.gguf", nil, gguf("BF16")},
		{"llama-gguf-q4_0.gguf", nil, gguf("Q4_0")},
		{"llama-gguf-q4_1.gguf", nil, gguf("Q4_1")},
		{"llama-gguf-q8_0.gguf", map[string]any{"tie_word_embeddings": false}, gguf("Q8_0")},
		{"llama-gguf-rope-freqs.gguf", nil, ropeFreqs},
		{"llama-gguf-q4_k_m.gguf", wide, mixed(q4KM)},
		{"llama-mxfp4", floatModes("mxfp4", map[string]any{"model.layers.1.mlp.down_proj": map[string]any{"group_size": 64, "bits": 8}}), quantizedStore},
		{"llama-nvfp4", floatModes("nvfp4", map[string]any{"model.layers.0.self_attn.v_proj": false}), quantizedStore},
		{"llama-nvfp4-global", floatModes("nvfp4", nil), quantizedGlobal},
		{"llama-mxfp8", floatModes("mxfp8", nil), quantizedStore},
	}
	for _, dtype := range []string{"Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"} {
		recipes = append(recipes, llamaRecipe{"llama-gguf-" + strings.ToLower(dtype) + ".gguf", wide, gguf(dtype)})
	}
	var out []Checkpoint
	for _, r := range recipes {
		if len(names) == 0 || slices.Contains(names, r.name) {
			out = append(out, r.checkpoint())
		}
	}
	return out
}

// wide makes every row a whole number of super-blocks.
var wide = map[string]any{
	"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "tie_word_embeddings": false,
}

// q4KM is what llama.cpp mixes for Q4_K_M, in small: some tensors in six bits.
func q4KM(name string) string {
	switch {
	case name == "output.weight", name == "blk.0.ffn_down.weight", name == "blk.1.attn_v.weight":
		return "Q6_K"
	}
	return "Q4_K"
}

// floatModes is a config whose matrices are in one of MLX's modes of small floats.
func floatModes(mode string, overrides map[string]any) map[string]any {
	f, _ := quant.FloatBlockMode(mode)
	block := map[string]any{"group_size": f.Group, "bits": f.Bits, "mode": mode}
	maps.Copy(block, overrides)
	return map[string]any{"quantization": block, "quantization_config": block, "tie_word_embeddings": false}
}

func rope(scaling map[string]any) map[string]any { return map[string]any{"rope_scaling": scaling} }

func quantized(group, bits int, overrides, more map[string]any) map[string]any {
	block := map[string]any{"group_size": group, "bits": bits, "mode": "affine"}
	maps.Copy(block, overrides)
	config := map[string]any{"quantization": block, "quantization_config": block}
	maps.Copy(config, more)
	return config
}

func (r llamaRecipe) checkpoint() Checkpoint {
	config := map[string]any{
		"model_type": "llama", "architectures": []string{"LlamaForCausalLM"},
		"hidden_size": llamaHidden, "intermediate_size": llamaInter, "num_hidden_layers": llamaLayers,
		"num_attention_heads": llamaHeads, "num_key_value_heads": llamaKVHeads, "vocab_size": llamaVocab,
		"max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
		"tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
	}
	maps.Copy(config, r.config)
	return Checkpoint{Name: r.name, Config: config, Tensors: llamaTensors(config), store: r.store}
}

// llamaTensors draws the weights under their Hugging Face names. Matrices have the deviation 1/sqrt(in), so that activations keep
// their size through the layers; norms lie around 1, so that a forgotten one shows.
func llamaTensors(config map[string]any) []Tensor {
	const seed = 20260
	hidden, inter, vocab := config["hidden_size"].(int), config["intermediate_size"].(int), llamaVocab
	headDim := hidden / llamaHeads
	if d, ok := config["head_dim"].(int); ok {
		headDim = d
	}
	var out []Tensor
	add := func(name string, mean, deviation float64, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		out = append(out, Tensor{name, shape, gaussian(seed, name, n, mean, deviation)})
	}
	linear := func(path string, rows, cols int, bias bool) {
		add(path+".weight", 0, 1/math.Sqrt(float64(cols)), rows, cols)
		if bias {
			add(path+".bias", 0, 0.1, rows)
		}
	}
	attentionBias, mlpBias := config["attention_bias"] == true, config["mlp_bias"] == true

	// Small against what the layers add, or a tied model would say its last token for ever.
	add("model.embed_tokens.weight", 0, 0.1, vocab, hidden)
	for i := range config["num_hidden_layers"].(int) {
		layer := fmt.Sprintf("model.layers.%d.", i)
		add(layer+"input_layernorm.weight", 1, 0.1, hidden)
		linear(layer+"self_attn.q_proj", llamaHeads*headDim, hidden, attentionBias)
		linear(layer+"self_attn.k_proj", llamaKVHeads*headDim, hidden, attentionBias)
		linear(layer+"self_attn.v_proj", llamaKVHeads*headDim, hidden, attentionBias)
		linear(layer+"self_attn.o_proj", hidden, llamaHeads*headDim, attentionBias)
		add(layer+"post_attention_layernorm.weight", 1, 0.1, hidden)
		linear(layer+"mlp.gate_proj", inter, hidden, mlpBias)
		linear(layer+"mlp.up_proj", inter, hidden, mlpBias)
		linear(layer+"mlp.down_proj", hidden, inter, mlpBias)
	}
	add("model.norm.weight", 1, 0.1, hidden)
	if config["tie_word_embeddings"] == false {
		linear("lm_head", vocab, hidden, false)
	}
	return out
}
