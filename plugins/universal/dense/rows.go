package dense

// rows is the table of architectures: what each does otherwise than a Row's zero value. Its configs' dialects are in plugin.yaml.
var rows = map[string]Row{
	"llama": {
		Norms: pre, QKVBias: "attention_bias", OBias: "attention_bias", MLPBias: "mlp_bias", GGUF: GGUF{Interleaved: true},
	},
	"smollm3": {
		Norms: pre, QKVBias: "attention_bias", OBias: "attention_bias", MLPBias: "mlp_bias", NoRope: listed, GGUF: GGUF{Interleaved: true},
	},
	"qwen2": {Norms: pre, QKVBias: always},
	"qwen3": {Norms: pre, QKNorm: perHead},
	"gemma": {Norms: pre, Norm: rmsPlusOne, Act: gelu, Head: tied, Embed: rootWidth},
	"gemma2": {
		Norms: sandwich, Norm: rmsPlusOne, Act: geluTanh, Head: tied, Embed: rootWidth, ScaleOf: "query_pre_attn_scalar",
		AttnCap: "attn_logit_softcapping", FinalCap: "final_logit_softcapping", GGUF: GGUF{Widest: 46},
	},
}
