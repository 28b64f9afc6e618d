package artifact

import "strings"

// ggufFields maps "{general.architecture}.suffix" to the key that config.json uses for the same fact.
var ggufFields = []struct{ suffix, key string }{
	{"block_count", "num_hidden_layers"},
	{"context_length", "max_position_embeddings"},
	{"embedding_length", "hidden_size"},
	{"feed_forward_length", "intermediate_size"},
	{"expert_count", "num_experts"},
	{"expert_used_count", "num_experts_per_tok"},
	{"expert_feed_forward_length", "moe_intermediate_size"},
	{"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
	{"ssm.conv_kernel", "linear_conv_kernel_dim"},
	{"ssm.state_size", "linear_key_head_dim"},
	{"ssm.group_count", "linear_num_key_heads"},
	{"ssm.time_step_rank", "linear_num_value_heads"},
	{"ssm.inner_size", "linear_inner_size"},
	{"full_attention_interval", "full_attention_interval"},
	{"attention.head_count", "num_attention_heads"},
	{"attention.head_count_kv", "num_key_value_heads"},
	{"attention.key_length", "head_dim"},
	{"attention.value_length", "value_head_dim"},
	{"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
	{"attention.layer_norm_epsilon", "layer_norm_eps"},
	{"attention.sliding_window", "sliding_window"},
	{"attention.q_lora_rank", "q_lora_rank"},
	{"attention.kv_lora_rank", "kv_lora_rank"},
	{"attention.temperature_scale", "llama_4_scaling_beta"},
	{"attention.causal", "is_causal"},
	{"attention.scale", "attention_multiplier"},
	{"attn_logit_softcapping", "attn_logit_softcapping"},
	{"final_logit_softcapping", "final_logit_softcapping"},
	{"embedding_scale", "embedding_multiplier"},
	{"residual_scale", "residual_multiplier"},
	{"logit_scale", "logits_scaling"},
	{"rope.freq_base", "rope_theta"},
	{"rope.freq_base_swa", "rope_local_base_freq"},
	{"rope.dimension_count", "rotary_dim"},
	{"rope.dimension_sections", "mrope_section"},
	{"rope.scaling.finetuned", "rope_finetuned"},
	{"vocab_size", "vocab_size"},
}

// ggufRope maps "{general.architecture}.rope.scaling.suffix" into rope_scaling.
var ggufRope = []struct{ suffix, key string }{
	{"factor", "factor"},
	{"original_context_length", "original_max_position_embeddings"},
	{"attn_factor", "attention_factor"},
	{"yarn_beta_fast", "beta_fast"},
	{"yarn_beta_slow", "beta_slow"},
	{"yarn_ext_factor", "extrapolation_factor"},
	{"yarn_log_multiplier", "mscale_all_dim"},
}

// ggufTokens maps tokenizer.ggml ids.
var ggufTokens = []struct{ suffix, key string }{
	{"bos_token_id", "bos_token_id"},
	{"padding_token_id", "pad_token_id"},
	{"unknown_token_id", "unk_token_id"},
}

// ggufPresent maps facts that a GGUF tells only by which tensors it holds.
var ggufPresent = []struct {
	tensor, key string
	when        bool
}{
	{"output.weight", "tie_word_embeddings", false},
	{"blk.0.attn_q.bias", "attention_bias", true},
	{"blk.0.ffn_up.bias", "mlp_bias", true},
}

// configOfGGUF spells metadata with config.json's keys. model_type is general.architecture.
func configOfGGUF(a *Artifact) (config, generation Config) {
	m := a.gguf
	arch := m.Architecture()
	tree := map[string]any{}
	if arch != "" {
		tree["model_type"] = arch
	}
	for _, f := range ggufFields {
		m.put(tree, f.key, arch+"."+f.suffix)
	}
	for _, f := range ggufTokens {
		m.put(tree, f.key, "tokenizer.ggml."+f.suffix)
	}
	m.slides(tree, arch)
	m.recurs(tree, arch)
	// Layers of a head for prediction are counted among the model's, behind them.
	if n, ok := m.Int(arch + ".nextn_predict_layers"); ok && n > 0 {
		if layers, ok := tree["num_hidden_layers"].(int64); ok && n < layers {
			tree["num_hidden_layers"] = layers - n
		}
		tree["mtp_num_hidden_layers"] = n
	}
	if rope := m.ropeScaling(arch); rope != nil {
		tree["rope_scaling"] = rope
	}
	if tokens, ok := m.Strings("tokenizer.ggml.tokens"); ok {
		tree["vocab_size"] = int64(len(tokens))
	}
	for _, p := range ggufPresent {
		if _, there := a.index[p.tensor]; there == p.when {
			tree[p.key] = true
		} else {
			tree[p.key] = false
		}
	}
	name := m.file
	gen := map[string]any{}
	if eos := m.ends(); len(eos) == 1 {
		tree["eos_token_id"], gen["eos_token_id"] = eos[0], eos[0]
	} else if len(eos) > 1 {
		tree["eos_token_id"], gen["eos_token_id"] = eos, eos
	}
	return NewConfig(name, tree), NewConfig(name, gen)
}

// ends is the ordered union of the ids that end a turn.
func (m *GGUFMetadata) ends() []any {
	var out []any
	for _, key := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		id, ok := m.Int("tokenizer.ggml." + key)
		if !ok {
			continue
		}
		seen := false
		for _, have := range out {
			seen = seen || have == id
		}
		if !seen {
			out = append(out, id)
		}
	}
	return out
}

// ropeScaling is nil when the file says nothing of it. A file that names no type means linear, as llama.cpp reads it, and one without a
// factor scales nothing.
func (m *GGUFMetadata) ropeScaling(arch string) map[string]any {
	kind, typed := m.String(arch + ".rope.scaling.type")
	if strings.EqualFold(kind, "none") {
		return nil
	}
	rope := map[string]any{}
	m.put(rope, "factor", arch+".rope.scale_linear") // older files
	for _, f := range ggufRope {
		m.put(rope, f.key, arch+".rope.scaling."+f.suffix)
	}
	if !typed && len(rope) == 0 {
		return nil
	}
	if !typed || kind == "linear" {
		kind = "linear"
		if rope["factor"] == nil || rope["factor"] == 0.0 {
			kind = "default"
		}
	}
	rope["rope_type"] = kind
	return rope
}

// slides spells which layers see a window: a period, or a flag for each layer.
func (m *GGUFMetadata) slides(tree map[string]any, arch string) {
	var layers []any
	add := func(slides bool) {
		layers = append(layers, map[bool]any{true: "sliding_attention", false: "full_attention"}[slides])
	}
	key := arch + ".attention.sliding_window_pattern"
	switch v := m.values[key].(type) {
	case []bool:
		for _, slides := range v {
			add(slides)
		}
	case []int64:
		for _, slides := range v {
			add(slides != 0)
		}
	default:
		m.put(tree, "sliding_window_pattern", key)
	}
	if layers != nil {
		tree["layer_types"] = layers
	}
}

// recurs spells which layers keep a state in the place of keys and values: a flag for each layer.
func (m *GGUFMetadata) recurs(tree map[string]any, arch string) {
	flags, ok := m.values[arch+".attention.recurrent_layers"].([]bool)
	if !ok {
		return
	}
	if n, ok := m.Int(arch + ".nextn_predict_layers"); ok && n > 0 && n < int64(len(flags)) {
		flags = flags[:int64(len(flags))-n]
	}
	layers := make([]any, len(flags))
	for i, recurrent := range flags {
		layers[i] = map[bool]any{true: "linear_attention", false: "full_attention"}[recurrent]
	}
	tree["layer_types"] = layers
}

// put copies one value in the types of a Config; per-layer arrays whose values are all equal become that value.
func (m *GGUFMetadata) put(tree map[string]any, key, from string) {
	switch v := m.values[from].(type) {
	case int64, float64, bool, string:
		tree[key] = v
	case uint64:
		tree[key] = float64(v)
	case []int64:
		tree[key] = perLayer(v)
	case []float64:
		tree[key] = perLayer(v)
	case []bool:
		tree[key] = perLayer(v)
	}
}

func perLayer[T comparable](values []T) any {
	same := len(values) > 0
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
		same = same && v == values[0]
	}
	if same {
		return list[0]
	}
	return list
}
