package tiny

import "math"

func ggufRecipes() []ggufRecipe {
	return append(append(ggufLlamas(), ggufQwensAndGemmas()...), ggufOthers()...)
}

// row is a checkpoint's recipe in float32.
func row(name, kind string, config map[string]any, tensors rowTensors) rowRecipe {
	return rowRecipe{name: name, kind: kind, config: config, tensors: tensors}
}

// deep is a shape of many narrow layers: llama.cpp knows some sizes by their number.
var deep = map[string]any{
	"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 199,
}

// ggufLlamas are those whose rows of q and k are permuted.
func ggufLlamas() []ggufRecipe {
	head := rowTensors{norms: preNorms, mean: 1, head: true}
	biased := rowTensors{norms: preNorms, mean: 1, qkv: true, o: true, mlp: true, head: true}
	dims := func(arch string, dim int) ggufField { return ggufField{arch + ".rope.dimension_count", dim} }
	granites := with(granite, "attention_bias", true, "mlp_bias", true)
	minicpmKeys := []ggufField{
		{"minicpm.embedding_scale", 12.0}, {"minicpm.residual_scale", 1.4 / math.Sqrt(4)}, {"minicpm.logit_scale", 96.0 / 32},
	}
	yarn := map[string]any{
		"type": "yarn", "rope_type": "yarn", "rope_theta": 1e5, "factor": 4.0, "original_max_position_embeddings": 32,
		"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
	}
	return []ggufRecipe{
		{
			rowRecipe: row("gguf-llama", "llama", with(nil, "head_dim", 32, "attention_bias", true, "mlp_bias", true, "tie_word_embeddings", false,
				"rope_theta", 1e4, "rope_scaling", map[string]any{
					"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
				}), biased),
			arch: "llama", norms: ggufPre, permute: true, keys: []ggufField{dims("llama", 32)}, factors: llama3Factors(32, 1e4, 8, 64),
		},
		{
			rowRecipe: row("gguf-mistral", "mistral", with(nil, "rope_theta", 1e4, "sliding_window", 24, "rope_scaling", map[string]any{"type": "linear", "factor": 4.0}),
				rowTensors{norms: preNorms, mean: 1}),
			arch: "llama", norms: ggufPre, permute: true, keys: []ggufField{dims("llama", 16), {"llama.rope.scaling.factor", 4.0}},
		},
		{
			rowRecipe: row("gguf-smollm3", "smollm3", with(nil, "rope_theta", 5e6), rowTensors{norms: preNorms, mean: 1}),
			arch:      "smollm3", norms: ggufPre, permute: true, keys: []ggufField{dims("smollm3", 16)},
		},
		{
			rowRecipe: row("gguf-ministral3", "ministral3", with(nil, "head_dim", 32, "rope_parameters", yarn), rowTensors{norms: preNorms, mean: 1}),
			arch:      "mistral3", norms: ggufPre, permute: true, keys: []ggufField{
				dims("mistral3", 32),
				{"mistral3.rope.freq_base", 1e5},
				{"mistral3.rope.scaling.type", "yarn"},
				{"mistral3.rope.scaling.factor", 4.0},
				{"mistral3.rope.scaling.original_context_length", 32},
				{"mistral3.rope.scaling.yarn_beta_fast", 32.0},
				{"mistral3.rope.scaling.yarn_beta_slow", 1.0},
				{"mistral3.rope.scaling.yarn_log_multiplier", 1.0},
				{"mistral3.attention.temperature_scale", 0.1},
			},
		},
		{
			rowRecipe: row("gguf-granite", "granite", granites, changed(biased, func(r *rowTensors) { r.head = false })),
			arch:      "granite", norms: ggufPre, permute: true, keys: []ggufField{
				dims("granite", 16), {"granite.attention.scale", 0.11}, {"granite.embedding_scale", 12.0}, {"granite.residual_scale", 0.22}, {"granite.logit_scale", 8.0},
			},
		},
		{rowRecipe: row("gguf-minicpm", "minicpm", with(minicpm, "rope_theta", 1e4), head), arch: "minicpm", norms: ggufPre, permute: true, keys: minicpmKeys},
		// Older files have no scales: they are those of the first MiniCPM.
		{rowRecipe: row("gguf-minicpm-old", "minicpm", with(minicpm, "rope_theta", 1e4, "dim_model_base", 256), head), arch: "minicpm", norms: ggufPre, permute: true},
		{
			rowRecipe: row("gguf-internlm2", "internlm2", with(nil, "bias", false, "max_position_embeddings", 512), internlm2(false)),
			arch:      "internlm2", norms: ggufIntern, permute: true,
		},
		{
			rowRecipe: row("gguf-internlm3", "internlm3", with(nil, "bias", true, "qkv_bias", true), biased),
			arch:      "llama", norms: ggufPre, permute: true, keys: []ggufField{dims("llama", 16)},
		},
	}
}

func ggufQwensAndGemmas() []ggufRecipe {
	window := func(arch string, n int) ggufField { return ggufField{arch + ".attention.sliding_window", n} }
	return []ggufRecipe{
		{rowRecipe: row("gguf-qwen2", "qwen2", with(nil, "rope_theta", 1e6), rowTensors{norms: preNorms, mean: 1, qkv: true}), arch: "qwen2", norms: ggufPre},
		{
			rowRecipe: row("gguf-qwen3", "qwen3", with(nil, "head_dim", 32, "rope_theta", 1e6, "tie_word_embeddings", false),
				rowTensors{norms: preNorms, mean: 1, headNorms: true, head: true}),
			arch: "qwen3", norms: ggufPre,
		},
		{rowRecipe: row("gguf-gemma", "gemma", with(nil, "head_dim", 32), rowTensors{norms: preNorms}), arch: "gemma", norms: ggufPre, plusOne: true},
		// llama.cpp hides what lies before a window from every other layer, mlx-lm does not: none is passed here.
		{
			rowRecipe: row("gguf-gemma2", "gemma2", with(nil, "head_dim", 32, "query_pre_attn_scalar", 32, "attn_logit_softcapping", 5.0, "final_logit_softcapping", 2.0),
				rowTensors{norms: fourNorms}),
			arch: "gemma2", norms: ggufFour, plusOne: true, keys: []ggufField{
				window("gemma2", 4096), {"gemma2.attn_logit_softcapping", 5.0}, {"gemma2.final_logit_softcapping", 2.0},
			},
		},
		{
			rowRecipe: row("gguf-gemma3", "gemma3_text", with(gemma3, "query_pre_attn_scalar", 32, "rope_local_base_freq", 2e4), rowTensors{norms: fourNorms, headNorms: true}),
			arch:      "gemma3", norms: ggufFour, plusOne: true, keys: []ggufField{
				window("gemma3", 24),
				{"gemma3.attention.sliding_window_pattern", 3},
				{"gemma3.rope.freq_base_swa", 2e4},
				{"gemma3.rope.scaling.type", "linear"},
				{"gemma3.rope.scaling.factor", 8.0},
			},
		},
	}
}

func ggufOthers() []ggufRecipe {
	dims := func(arch string, dim int) ggufField { return ggufField{arch + ".rope.dimension_count", dim} }
	olmo := rowTensors{norms: postNorms, mean: 1, fullNorms: true, head: true}
	exaone := rowTensors{norms: postNorms, mean: 1, headNorms: true, head: true}
	long, short := []float64{1, 1.2, 1.8, 2.5, 4, 7}, []float64{1, 1, 1, 1, 1, 1}
	coheres := with(nil, "layer_norm_eps", 1e-5, "logit_scale", 0.125, "rope_theta", 1e4)
	stable := func(parallel bool) map[string]any {
		return with(nil, "layer_norm_eps", 1e-5, "rope_theta", 1e4, "use_qkv_bias", true, "partial_rotary_factor", 0.25, "qk_layernorm", true, "use_parallel_residual", parallel)
	}
	stables := rowTensors{norms: preNorms, mean: 1, normBias: true, qkv: true, eachHead: true, head: true}
	latent := with(latents(nil, 32, 32, 16, 16), "num_key_value_heads", 6, "dim_model_base", 256, "rms_norm_eps", 1e-5)
	factors := []float64{1, 1.25, 2, 3.25, 5, 7.25, 10, 13.25}
	latent["rope_scaling"] = map[string]any{"type": "longrope", "long_factor": factors, "short_factor": factors, "original_max_position_embeddings": 512}
	slides := make([]bool, 64)
	for i := range slides {
		slides[i] = (i+1)%4 != 0
	}
	return []ggufRecipe{
		{
			rowRecipe: row("gguf-phi3", "phi3", with(nil, "partial_rotary_factor", 0.75, "original_max_position_embeddings", 64, "rope_theta", 1e4, "rope_scaling",
				map[string]any{"type": "longrope", "short_factor": short, "long_factor": long}), rowTensors{norms: preNorms, mean: 1, fused: true, head: true}),
			arch: "phi3", norms: ggufPre, factors: longFactors(short, long...), keys: []ggufField{
				dims("phi3", 12),
				{"phi3.attention.sliding_window", 0},
				{"phi3.rope.scaling.original_context_length", 64},
				{"phi3.rope.scaling.attn_factor", math.Sqrt(1 + math.Log(8)/math.Log(64))},
			},
		},
		{
			rowRecipe: row("gguf-phi3-plain", "phi3", with(nil, "rope_theta", 1e4, "tie_word_embeddings", true), rowTensors{norms: preNorms, mean: 1, fused: true}),
			arch:      "phi3", norms: ggufPre, keys: []ggufField{dims("phi3", 16), {"phi3.attention.sliding_window", 24}, {"phi3.rope.scaling.original_context_length", 512}},
		},
		{rowRecipe: row("gguf-olmo2", "olmo2", with(nil, "rope_theta", 5e5, "tie_word_embeddings", false), olmo), arch: "olmo2", norms: ggufPost},
		{
			rowRecipe: row("gguf-olmo3", "olmo3", with(nil, "rope_theta", 5e5, "sliding_window", 24, "rope_scaling", map[string]any{
				"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0,
			}), olmo),
			arch: "olmo2", norms: ggufPost, keys: []ggufField{
				{"olmo2.attention.sliding_window", 24},
				{"olmo2.attention.sliding_window_pattern", []bool{true, true, true, false}},
				{"olmo2.rope.scaling.type", "yarn"},
				{"olmo2.rope.scaling.factor", 8.0},
				{"olmo2.rope.scaling.original_context_length", 64},
			},
		},
		{
			rowRecipe: row("gguf-glm4", "glm4", with(nil, "head_dim", 32, "attention_bias", true, "partial_rotary_factor", 0.5, "rope_theta", 10000.0),
				rowTensors{norms: glmNorms, mean: 1, qkv: true, fusedGate: true, head: true}),
			arch: "glm4", norms: ggufGLM, keys: []ggufField{dims("glm4", 16)},
		},
		{rowRecipe: row("gguf-starcoder2", "starcoder2", with(nil, "norm_epsilon", 1e-5, "rope_theta", 1e5), starcoder2), arch: "starcoder2", norms: ggufPre},
		{
			rowRecipe: row("gguf-cohere", "cohere", coheres, rowTensors{norms: preNorms[:1], mean: 1}),
			arch:      "command-r", norms: ggufPre, keys: []ggufField{{"command-r.logit_scale", 0.125}, {"command-r.rope.scaling.type", "none"}},
		},
		{
			rowRecipe: row("gguf-cohere-plus", "cohere", with(with(deep, flat(coheres)...), "use_qk_norm", true), rowTensors{norms: preNorms[:1], mean: 1, headRows: true}),
			arch:      "command-r", norms: ggufPre, keys: []ggufField{{"command-r.logit_scale", 0.125}, {"command-r.rope.scaling.type", "none"}},
		},
		{
			rowRecipe: row("gguf-cohere2", "cohere2", with(coheres, "head_dim", 16, "sliding_window", 24), rowTensors{norms: preNorms[:1], mean: 1}),
			arch:      "cohere2", norms: ggufPre, keys: []ggufField{
				{"cohere2.logit_scale", 0.125}, {"cohere2.attention.sliding_window", 24}, dims("cohere2", 16), {"cohere2.rope.scaling.type", "none"},
			},
		},
		{
			rowRecipe: row("gguf-stablelm", "stablelm", stable(false), stables),
			arch:      "stablelm", norms: ggufPre, keys: []ggufField{dims("stablelm", 4), {"stablelm.use_parallel_residual", false}},
		},
		{
			rowRecipe: row("gguf-stablelm-parallel", "stablelm", stable(true), changed(stables, func(r *rowTensors) { r.norms = preNorms[:1] })),
			arch:      "stablelm", norms: ggufPre, keys: []ggufField{dims("stablelm", 4), {"stablelm.use_parallel_residual", true}},
		},
		{
			rowRecipe: row("gguf-exaone4", "exaone4", with(exaone4(nil, nil), "head_dim", 16), exaone),
			arch:      "exaone4", norms: ggufPost, factors: llama3Factors(16, 1e6, 16, 64),
		},
		{
			rowRecipe: row("gguf-exaone4-slides", "exaone4", with(with(deep, flat(exaone4("LLLG", 24))...), "head_dim", 16), exaone),
			arch:      "exaone4", norms: ggufPost, factors: llama3Factors(16, 1e6, 16, 64), keys: []ggufField{
				{"exaone4.attention.sliding_window", 24}, {"exaone4.attention.sliding_window_pattern", slides},
			},
		},
		{
			rowRecipe: row("gguf-minicpm3", "minicpm3", latent, rowTensors{norms: preNorms, mean: 1, latent: true, head: true}),
			arch:      "minicpm3", norms: ggufPre, factors: longFactors(factors, factors...), keys: []ggufField{
				{"minicpm3.attention.q_lora_rank", 32}, {"minicpm3.attention.kv_lora_rank", 32}, {"minicpm3.attention.key_length", 32}, dims("minicpm3", 16),
			},
		},
	}
}
