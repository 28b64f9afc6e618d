package dense

// rows is the table of architectures: what each does otherwise than a Row's zero value. Its configs' dialects are in plugin.yaml.
var rows = map[string]Row{
	"llama": {
		Norms: pre, QKVBias: "attention_bias", OBias: "attention_bias", MLPBias: "mlp_bias", GGUF: GGUF{Interleaved: true},
	},
	"smollm3": {
		Norms: pre, QKVBias: "attention_bias", OBias: "attention_bias", MLPBias: "mlp_bias", NoRope: listed, GGUF: GGUF{Interleaved: true},
	},
	"ministral3": {Norms: pre, QueryBeta: "llama_4_scaling_beta", GGUF: GGUF{Interleaved: true}},
	"granite": {
		Norms: pre, QKVBias: "attention_bias", OBias: "attention_bias", MLPBias: "mlp_bias", EmbedBy: "embedding_multiplier",
		ScaleBy: "attention_multiplier", Residual: "residual_multiplier", DivideBy: "logits_scaling",
		GGUF: GGUF{Interleaved: true, Still: true},
	},
	"minicpm": {
		Norms: pre, Head: ifStored, EmbedBy: "scale_emb", Depth: "scale_depth", WidthBase: "dim_model_base",
		GGUF: GGUF{Interleaved: true, Before: Scales{12, 1.4, 256}},
	},
	"minicpm3": {
		Norms: pre, QKVBias: "attention_bias", OBias: "attention_bias", Head: ifStored, EmbedBy: "scale_emb", Depth: "scale_depth",
		WidthBase: "dim_model_base", Latent: true, GGUF: GGUF{Before: Scales{12, 1.4, 256}},
	},

	"qwen2": {Norms: pre, QKVBias: always},
	"qwen3": {Norms: pre, QKNorm: perHead},
	"phi3":  {Norms: pre, Partial: "partial_rotary_factor", Original: "original_max_position_embeddings", GGUF: GGUF{FusedUp: true}},
	"glm4": {
		Norms:   Norms{"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"},
		QKVBias: "attention_bias", Head: own, Partial: "partial_rotary_factor", GGUF: GGUF{FusedUp: true},
	},
	"internlm2": {
		Norms: Norms{Attn: "attention_norm", MLP: "ffn_norm"}, QKVBias: "bias", OBias: "bias", GroupedQKV: true, GGUF: GGUF{Interleaved: true},
		Renames: []string{
			"attention.rope.inv_freq", "", "tok_embeddings.", "embed_tokens.", "attention.wqkv.", "self_attn.qkv_proj.",
			"attention.wo.", "self_attn.o_proj.", "feed_forward.w1.", "mlp.gate_proj.", "feed_forward.w2.", "mlp.down_proj.",
			"feed_forward.w3.", "mlp.up_proj.", "output.", "lm_head.",
		},
	},
	"internlm3": {Norms: pre, QKVBias: "qkv_bias", OBias: "qkv_bias", MLPBias: "bias", GGUF: GGUF{Interleaved: true}},

	"olmo2":   {Norms: post, QKVBias: "attention_bias", OBias: "attention_bias", MLPBias: "mlp_bias", QKNorm: fullWidth, GGUF: GGUF{Slides: "olmo3"}},
	"olmo3":   {Norms: post, QKVBias: "attention_bias", OBias: "attention_bias", QKNorm: fullWidth, LocalTheta: "rope_theta", GGUF: GGUF{Period: 4}},
	"exaone4": {Norms: post, QKNorm: perHead, NoRope: fullLayers, GGUF: GGUF{Period: 4}},

	"gemma": {Norms: pre, Norm: rmsPlusOne, Act: gelu, Head: tied, Embed: rootWidth},
	"gemma2": {
		Norms: sandwich, Norm: rmsPlusOne, Act: geluTanh, Head: tied, Embed: rootWidth, ScaleOf: "query_pre_attn_scalar",
		AttnCap: "attn_logit_softcapping", FinalCap: "final_logit_softcapping", GGUF: GGUF{Widest: 46},
	},
	"gemma3":      gemma3,
	"gemma3_text": gemma3,

	"starcoder2": {
		Norms: pre, Norm: layerNorm, NormBias: always, QKVBias: always, OBias: always, MLPBias: always, Act: gelu, Ungated: true,
		Renames: []string{"mlp.c_fc.", "mlp.up_proj.", "mlp.c_proj.", "mlp.down_proj."},
	},
	"stablelm": {
		Norms: pre, Norm: layerNorm, NormBias: always, Parallel: Parallel{If: "use_parallel_residual"}, QKVBias: "use_qkv_bias",
		QKNorm: headTensors, QKNormIf: "qk_layernorm", Head: own, Partial: "partial_rotary_factor",
	},
	"cohere": {
		Norms: Norms{Attn: "input_layernorm"}, Norm: layerNorm, NormBias: "layer_norm_bias", Parallel: Parallel{If: always, First: true},
		QKVBias: "attention_bias", OBias: "attention_bias", QKNorm: headLayers, QKNormIf: "use_qk_norm", Head: tied, TimesBy: "logit_scale",
	},
	"cohere2": {
		Norms: Norms{Attn: "input_layernorm"}, Norm: layerNorm, NormBias: "layer_norm_bias", Parallel: Parallel{If: always, First: true},
		QKVBias: "attention_bias", OBias: "attention_bias", NoRope: allFull, Head: tied, TimesBy: "logit_scale",
	},
}

var gemma3 = Row{
	Norms: sandwich, Norm: rmsPlusOne, QKNorm: perHead, Act: geluTanh, Head: ifStored, Embed: rootWidthBF16, ScaleOf: "query_pre_attn_scalar",
	LocalTheta: "rope_local_base_freq", ClipFP16: true, GGUF: GGUF{Widest: 62},
	Renames: []string{
		"vision_tower.", "", "multi_modal_projector.", "", "model.language_model.", "model.", "language_model.model.", "model.",
		"language_model.lm_head.", "lm_head.",
	},
}
