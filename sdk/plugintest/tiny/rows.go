package tiny

import (
	"maps"
	"slices"
	"strings"
)

// rowRecipe is one checkpoint of the dense graph: an architecture, what its config says, and the tensors beside llama's.
type rowRecipe struct {
	name, kind string
	config     map[string]any
	tensors    rowTensors
	bits       int // of affine weights in groups of 32; 0 stores float32
}

// rowTensors says which tensors a row has, under its own names. The zero value is a llama without norms.
type rowTensors struct {
	norms       []string // of a layer, as wide as the model
	mean        float64  // of norms' weights: 1, or 0 where they are stored less one
	normBias    bool
	qkv, o, mlp bool // biases
	head        bool // its own head
	headNorms   bool // q_norm and k_norm as wide as a head
	fullNorms   bool // as all heads
	fused       bool // qkv_proj and gate_up_proj
	fusedGate   bool // gate_up_proj alone
	unfusedGate bool // of fused, qkv_proj alone
	headRows    bool // q_norm and k_norm with a row for each head
	eachHead    bool // a norm for each head, in tensors of their own
	latent      bool // minicpm3's attention
	rename      *strings.Replacer
	ungated     [2]string
	prefix      string // in front of every name
	tower       bool   // and a vision tower beside
}

var (
	preNorms  = []string{"input_layernorm", "post_attention_layernorm"}
	postNorms = []string{"post_attention_layernorm", "post_feedforward_layernorm"}
	fourNorms = []string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}
)

// Dense lists the checkpoints of the dense graph's rows: NAME-a of each is what `make test` runs, NAME-b what `make test-full` runs
// beside. With names only those are drawn.
func Dense(names ...string) []Checkpoint {
	var out []Checkpoint
	for _, r := range rowRecipes() {
		if len(names) == 0 || slices.Contains(names, r.name) {
			out = append(out, r.checkpoint())
		}
	}
	return out
}

// DenseNames lists the names of Dense's checkpoints.
func DenseNames() []string {
	var out []string
	for _, r := range rowRecipes() {
		out = append(out, r.name)
	}
	return out
}

func rowRecipes() []rowRecipe {
	return []rowRecipe{
		{"qwen2-a", "qwen2", nil, rowTensors{norms: preNorms, mean: 1, qkv: true}, 0},
		{
			"qwen2-b", "qwen2", with(small, "rope_parameters", map[string]any{"rope_type": "default", "rope_theta": 1000000.0}, "tie_word_embeddings", false),
			rowTensors{norms: preNorms, mean: 1, qkv: true, head: true},
			4,
		},
		{
			"qwen3-a", "qwen3",
			map[string]any{"head_dim": 32, "rope_theta": 1e6, "tie_word_embeddings": false},
			rowTensors{norms: preNorms, mean: 1, headNorms: true, head: true},
			0,
		},
		{
			"qwen3-b", "qwen3", with(small, "head_dim", 24, "rope_theta", 1e6, "tie_word_embeddings", true),
			rowTensors{norms: preNorms, mean: 1, headNorms: true},
			4,
		},
		{"smollm3-a", "smollm3", map[string]any{"rope_theta": 5e6}, rowTensors{norms: preNorms, mean: 1}, 0},
		{
			"smollm3-b", "smollm3", with(small, "no_rope_layers", []int{0, 1, 0}, "attention_bias", true, "mlp_bias", true),
			rowTensors{norms: preNorms, mean: 1, qkv: true, o: true, mlp: true},
			4,
		},
		{"gemma-a", "gemma", map[string]any{"head_dim": 32, "hidden_act": "gelu"}, rowTensors{norms: preNorms}, 0},
		{"gemma-b", "gemma", with(small, "head_dim", 24, "num_key_value_heads", 1), rowTensors{norms: preNorms}, 4},
		{
			"gemma2-a", "gemma2",
			map[string]any{"head_dim": 32, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 2.0},
			rowTensors{norms: fourNorms},
			0,
		},
		{"gemma2-b", "gemma2", with(small, "head_dim", 24), rowTensors{norms: fourNorms}, 4},
		{"phi3-a", "phi3", with(nil, "partial_rotary_factor", 0.75, "original_max_position_embeddings", 64, "rope_scaling", map[string]any{
			"type": "longrope", "short_factor": []float64{1, 1, 1, 1, 1, 1}, "long_factor": []float64{1, 1.2, 1.8, 2.5, 4, 7},
		}), rowTensors{norms: preNorms, mean: 1, fused: true, head: true}, 0},
		{"phi3-b", "phi3", with(small, "tie_word_embeddings", true, "rope_scaling", map[string]any{
			"type": "linear", "factor": 4.5, "long_factor": []float64{1},
		}), rowTensors{norms: preNorms, mean: 1, fused: true}, 4},
		{
			"glm4-a", "glm4", with(nil, "head_dim", 32, "attention_bias", true, "partial_rotary_factor", 0.5, "rope_theta", 10000.0),
			rowTensors{norms: glmNorms, mean: 1, qkv: true, fusedGate: true, head: true},
			0,
		},
		{
			"glm4-b", "glm4", with(small, "head_dim", 24, "attention_bias", false, "partial_rotary_factor", 1.0, "rope_theta", 50000.0),
			rowTensors{norms: glmNorms, mean: 1, fusedGate: true, head: true},
			4,
		},
		{"granite-a", "granite", with(granite, "attention_bias", false, "mlp_bias", false), rowTensors{norms: preNorms, mean: 1}, 0},
		{
			"granite-b", "granite", with(with(small, flat(granite)...), "attention_bias", true, "mlp_bias", true, "tie_word_embeddings", false),
			rowTensors{norms: preNorms, mean: 1, qkv: true, o: true, mlp: true, head: true},
			4,
		},
		{"starcoder2-a", "starcoder2", with(nil, "norm_epsilon", 1e-5, "rope_theta", 1e5, "hidden_act", "gelu_pytorch_tanh"), starcoder2, 0},
		{"starcoder2-b", "starcoder2", with(small, "norm_epsilon", 1e-4, "tie_word_embeddings", false), changed(starcoder2, func(r *rowTensors) { r.head = true }), 4},
		{"gemma3-a", "gemma3_text", gemma3, rowTensors{norms: fourNorms, headNorms: true}, 0},
		{"gemma3-b", "gemma3", map[string]any{
			"text_config": with(with(small, flat(gemma3)...), "head_dim", 24, "model_type", "gemma3_text", "num_key_value_heads", 1),
			"vocab_size":  199,
		}, rowTensors{norms: fourNorms, headNorms: true, prefix: "language_model.", tower: true}, 4},
		{
			"ministral3-a", "ministral3",
			map[string]any{
				"head_dim": 32, "sliding_window": 24, "layer_types": []string{slides, full, slides, full},
				"rope_parameters": map[string]any{
					"type": "yarn", "rope_type": "yarn", "rope_theta": 1e5, "factor": 4.0, "original_max_position_embeddings": 32,
					"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
				},
			},
			rowTensors{norms: preNorms, mean: 1},
			0,
		},
		{"ministral3-b", "ministral3", with(small, "tie_word_embeddings", false, "rope_parameters", map[string]any{
			"rope_type": "default", "rope_theta": 1e5, "original_max_position_embeddings": 100, "llama_4_scaling_beta": 0.5,
		}), rowTensors{norms: preNorms, mean: 1, head: true}, 4},
		{"olmo2-a", "olmo2", map[string]any{"rope_theta": 5e5}, rowTensors{norms: postNorms, mean: 1, fullNorms: true}, 0},
		{
			"olmo2-b", "olmo2", with(small, "attention_bias", true, "mlp_bias", true, "tie_word_embeddings", false),
			rowTensors{norms: postNorms, mean: 1, fullNorms: true, qkv: true, o: true, mlp: true, head: true},
			4,
		},
		{"olmo3-a", "olmo3", map[string]any{"rope_theta": 5e5, "sliding_window": 24, "rope_scaling": map[string]any{
			"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0,
		}}, rowTensors{norms: postNorms, mean: 1, fullNorms: true, head: true}, 0},
		{
			"olmo3-b", "olmo3", with(small, "rope_theta", 1e4, "sliding_window", 8, "layer_types", []string{full, slides, slides}, "tie_word_embeddings", true),
			rowTensors{norms: postNorms, mean: 1, fullNorms: true},
			4,
		},
		{"exaone4-a", "exaone4", exaone4("LLG", 24), rowTensors{norms: postNorms, mean: 1, headNorms: true, head: true}, 0},
		{
			"exaone4-b", "exaone4", with(with(small, flat(exaone4(nil, nil))...), "head_dim", 24, "tie_word_embeddings", true),
			rowTensors{norms: postNorms, mean: 1, headNorms: true},
			4,
		},
		{
			"cohere-a", "cohere", with(nil, "layer_norm_eps", 1e-5, "logit_scale", 0.125, "use_qk_norm", true),
			rowTensors{norms: preNorms[:1], mean: 1, headRows: true},
			0,
		},
		{
			"cohere-b", "cohere", with(small, "layer_norm_bias", true, "attention_bias", true, "rope_theta", 1e4),
			rowTensors{norms: preNorms[:1], mean: 1, normBias: true, qkv: true, o: true},
			4,
		},
		{
			"cohere2-a", "cohere2", with(nil, "head_dim", 16, "layer_norm_eps", 1e-5, "logit_scale", 0.25, "sliding_window", 24),
			rowTensors{norms: preNorms[:1], mean: 1},
			0,
		},
		{
			"cohere2-b", "cohere2", with(small, "head_dim", 24, "sliding_window", 7, "sliding_window_pattern", 2, "attention_bias", true),
			rowTensors{norms: preNorms[:1], mean: 1, qkv: true, o: true},
			4,
		},
		{
			"stablelm-a", "stablelm", with(nil, "layer_norm_eps", 1e-5, "rope_theta", 1e4, "use_qkv_bias", true, "partial_rotary_factor", 0.25, "qk_layernorm", true),
			rowTensors{norms: preNorms, mean: 1, normBias: true, qkv: true, eachHead: true, head: true},
			0,
		},
		{
			"stablelm-b", "stablelm", with(small, "layer_norm_eps", 1e-5, "rope_theta", 1e4, "use_qkv_bias", false, "partial_rotary_factor", 0.5, "use_parallel_residual", true),
			rowTensors{norms: preNorms[:1], mean: 1, normBias: true, head: true},
			4,
		},
		{"internlm2-a", "internlm2", with(nil, "bias", true, "max_position_embeddings", 512), internlm2(true), 0},
		{"internlm2-b", "internlm2", with(small, "bias", false, "num_key_value_heads", 2, "max_position_embeddings", 64, "rope_scaling",
			map[string]any{"type": "dynamic", "factor": 2.0}), internlm2(false), 4},
		{"internlm3-a", "internlm3", with(nil, "bias", true, "qkv_bias", true, "max_position_embeddings", 64, "rope_scaling",
			map[string]any{"rope_type": "dynamic", "factor": 3.0}), rowTensors{norms: preNorms, mean: 1, qkv: true, o: true, mlp: true, head: true}, 0},
		{"internlm3-b", "internlm3", with(small, "tie_word_embeddings", true), rowTensors{norms: preNorms, mean: 1}, 4},
		{"minicpm-a", "minicpm", minicpm, rowTensors{norms: preNorms, mean: 1, head: true}, 0},
		{"minicpm-b", "minicpm", with(small, flat(minicpm)...), rowTensors{norms: preNorms, mean: 1, head: true}, 4},
		{"minicpm3-a", "minicpm3", latents(nil, 32, 48, 16, 16), rowTensors{norms: preNorms, mean: 1, latent: true, head: true}, 0},
		{"minicpm3-b", "minicpm3", latents(small, 64, 32, 8, 8), rowTensors{norms: preNorms, mean: 1, latent: true, head: true}, 4},
	}
}

// small is another shape than the usual one: odd where a format allows it, and none that the attention kernel takes.
var small = map[string]any{
	"hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 199,
}

// with is base and more: keys and values in turn.
func with(base map[string]any, more ...any) map[string]any {
	out := map[string]any{}
	maps.Copy(out, base)
	for i := 0; i < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

func (r rowRecipe) checkpoint() Checkpoint {
	config := map[string]any{
		"model_type": r.kind, "hidden_size": 96, "intermediate_size": 224, "num_hidden_layers": 4, "num_attention_heads": 6,
		"num_key_value_heads": 3, "vocab_size": 211, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "bos_token_id": 1, "eos_token_id": 2,
		"torch_dtype": "float32",
	}
	maps.Copy(config, r.config)
	store := safetensors("F32")
	if r.bits != 0 {
		block := map[string]any{"group_size": 32, "bits": r.bits, "mode": "affine"}
		config["quantization"], config["quantization_config"] = block, block
		store = quantizedStore
	}
	d := &rowDraw{config: config, has: r.tensors}
	if text, ok := config["text_config"].(map[string]any); ok {
		d.config = with(config, flat(text)...)
	}
	d.draw()
	return Checkpoint{Name: r.name, Config: config, Tensors: d.out, store: store}
}

// flat is a map as keys and values in turn.
func flat(m map[string]any) []any {
	var out []any
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, key, m[key])
	}
	return out
}

func changed(r rowTensors, change func(*rowTensors)) rowTensors {
	change(&r)
	return r
}

const slides, full = "sliding_attention", "full_attention"

var (
	glmNorms = []string{"input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm", "post_mlp_layernorm"}
	granite  = map[string]any{
		"embedding_multiplier": 12.0, "attention_multiplier": 0.11, "residual_multiplier": 0.22, "logits_scaling": 8.0, "rope_theta": 1e4,
	}
	starcoder2 = rowTensors{norms: preNorms, mean: 1, normBias: true, qkv: true, o: true, mlp: true, ungated: [2]string{"mlp.c_fc", "mlp.c_proj"}}
	gemma3     = map[string]any{
		"head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": 24, "sliding_window_pattern": 3, "rope_theta": 1e6,
		"rope_local_base_freq": 1e4, "rope_scaling": map[string]any{"rope_type": "linear", "factor": 8.0},
	}
	minicpm = map[string]any{"dim_model_base": 32, "scale_depth": 1.4, "scale_emb": 12.0, "tie_word_embeddings": false}
)

func exaone4(pattern, window any) map[string]any {
	return map[string]any{
		"head_dim": 32, "rope_theta": 1e6, "tie_word_embeddings": false, "sliding_window": window, "sliding_window_pattern": pattern,
		"rope_scaling": map[string]any{
			"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
		},
	}
}

// internlm2 has names of its own and the heads of a group side by side.
func internlm2(bias bool) rowTensors {
	return rowTensors{norms: []string{"attention_norm", "ffn_norm"}, mean: 1, fused: true, unfusedGate: true, qkv: bias, o: bias, head: true, rename: strings.NewReplacer(
		"embed_tokens", "tok_embeddings", "self_attn.qkv_proj", "attention.wqkv", "self_attn.o_proj", "attention.wo", "mlp.gate_proj", "feed_forward.w1",
		"mlp.up_proj", "feed_forward.w3", "mlp.down_proj", "feed_forward.w2", "lm_head", "output",
	)}
}

// latents is a minicpm3 of these widths.
func latents(base map[string]any, query, kv, plain, rotated int) map[string]any {
	factors := make([]float64, rotated/2)
	for i := range factors {
		factors[i] = 1 + float64(i*i)/4
	}
	out := with(base, flat(minicpm)...)
	return with(out, "q_lora_rank", query, "kv_lora_rank", kv, "qk_nope_head_dim", plain, "qk_rope_head_dim", rotated, "rope_theta", 1e4,
		"rope_scaling", map[string]any{
			"type": "longrope", "long_factor": factors, "short_factor": factors, "original_max_position_embeddings": 64,
		})
}

func (r *rowDraw) latents(attn string) {
	hidden, heads := r.int("hidden_size"), r.int("num_attention_heads")
	query, kv, plain, rotated := r.int("q_lora_rank"), r.int("kv_lora_rank"), r.int("qk_nope_head_dim"), r.int("qk_rope_head_dim")
	value := hidden / heads
	r.linear(attn+"q_a_proj", query, hidden, r.has.qkv)
	r.norm(attn+"q_a_layernorm", query)
	r.linear(attn+"q_b_proj", heads*(plain+rotated), query, false)
	r.linear(attn+"kv_a_proj_with_mqa", kv+rotated, hidden, r.has.qkv)
	r.norm(attn+"kv_a_layernorm", kv)
	r.linear(attn+"kv_b_proj", heads*(plain+value), kv, false)
	r.linear(attn+"o_proj", hidden, heads*value, r.has.o)
}
