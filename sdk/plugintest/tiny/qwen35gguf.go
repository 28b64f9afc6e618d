package tiny

import (
	"math"
	"slices"
	"strings"
)

// Qwen35GGUF lists checkpoints of the qwen3.5 graphs as llama.cpp's converter (conversion/qwen.py of llama-cpp-python 0.3.36) writes them,
// and beside those of floats their twins as Hugging Face has them. With names only those are drawn.
func Qwen35GGUF(names ...string) []Checkpoint {
	bare := func(model []Tensor) []Tensor { return model }
	// As many value heads for each key head as a large model has, and as many as there are.
	turns := map[string]any{"linear_num_value_heads": 6, "num_hidden_layers": 3, "full_attention_interval": 2, "tie_word_embeddings": true}
	even := map[string]any{"linear_num_value_heads": 2, "num_hidden_layers": 2, "full_attention_interval": 2}
	floats := qwen35GGUFStore(all("F32"))
	return qwen35Checkpoints(names, []qwen35Recipe{
		{"qwen35-gguf-f32", nil, hfLayout(true), safetensors("F32"), false, nil},
		{"qwen35-gguf-f32.gguf", nil, bare, floats, true, nil},
		{"qwen35-gguf-turns", turns, hfLayout(false), safetensors("F32"), false, nil},
		{"qwen35-gguf-turns.gguf", turns, withoutHead, floats, true, nil},
		{"qwen35-gguf-even", even, hfLayout(false), safetensors("F32"), false, nil},
		{"qwen35-gguf-even.gguf", even, withoutHead, floats, true, nil},
		{"qwen35-gguf-q8_0.gguf", nil, withoutHead, qwen35GGUFStore(all("Q8_0")), true, nil},
		{"qwen35-moe-gguf-f32", qwen35MoE(nil), hfExperts(hfLayout(false)), safetensors("F32"), false, nil},
		{"qwen35-moe-gguf-f32.gguf", qwen35MoE(nil), withoutHead, floats, true, nil},
		{"qwen35-moe-gguf-q4_1.gguf", qwen35MoE(map[string]any{"shared_expert_intermediate_size": 64}), withoutHead, qwen35GGUFStore(all("Q4_1")), true, nil},
	})
}

func withoutHead(model []Tensor) []Tensor {
	return slices.DeleteFunc(model, func(t Tensor) bool { return strings.HasPrefix(t.Name, "mtp.") })
}

var qwen35GGUFNames = strings.NewReplacer(
	"model.embed_tokens.", "token_embd.", "model.layers.", "blk.", "model.norm.", "output_norm.", "lm_head.", "output.",
	"mtp.fc.", "blk.4.nextn.eh_proj.", "mtp.pre_fc_norm_embedding.", "blk.4.nextn.enorm.", "mtp.pre_fc_norm_hidden.", "blk.4.nextn.hnorm.",
	"mtp.norm.", "blk.4.nextn.shared_head_norm.", "mtp.layers.0.", "blk.4.",
	"input_layernorm.", "attn_norm.", "post_attention_layernorm.", "post_attention_norm.",
	"self_attn.q_norm.", "attn_q_norm.", "self_attn.k_norm.", "attn_k_norm.",
	"self_attn.q_proj.", "attn_q.", "self_attn.k_proj.", "attn_k.", "self_attn.v_proj.", "attn_v.", "self_attn.o_proj.", "attn_output.",
	"linear_attn.in_proj_qkv.", "attn_qkv.", "linear_attn.in_proj_z.", "attn_gate.", "linear_attn.in_proj_b.", "ssm_beta.", "linear_attn.in_proj_a.", "ssm_alpha.",
	"linear_attn.conv1d.", "ssm_conv1d.", "linear_attn.A_log", "ssm_a", "linear_attn.dt_bias", "ssm_dt.bias", "linear_attn.norm.", "ssm_norm.",
	"linear_attn.out_proj.", "ssm_out.",
	"mlp.shared_expert_gate.", "ffn_gate_inp_shexp.", "mlp.shared_expert.gate_proj.", "ffn_gate_shexp.", "mlp.shared_expert.up_proj.", "ffn_up_shexp.",
	"mlp.shared_expert.down_proj.", "ffn_down_shexp.", "mlp.gate.", "ffn_gate_inp.",
	"mlp.switch_mlp.gate_proj.", "ffn_gate_exps.", "mlp.switch_mlp.up_proj.", "ffn_up_exps.", "mlp.switch_mlp.down_proj.", "ffn_down_exps.",
	"mlp.gate_proj.", "ffn_gate.", "mlp.up_proj.", "ffn_up.", "mlp.down_proj.", "ffn_down.",
)

// qwen35GGUFStore stores matrices in the type that a name of the file has.
func qwen35GGUFStore(dtype func(name string) string) func(Checkpoint, string) error {
	return func(c Checkpoint, path string) error {
		heads, head := qwen35Heads{c.Config}, false
		var tensors []stored
		for _, t := range c.Tensors {
			head = head || strings.HasPrefix(t.Name, "mtp.")
			t = heads.turned(t)
			if strings.HasSuffix(t.Name, "conv1d.weight") {
				t.Shape = t.Shape[:2]
			}
			if strings.HasSuffix(t.Name, "shared_expert_gate.weight") {
				t.Shape = t.Shape[1:]
			}
			s := stored{qwen35GGUFNames.Replace(t.Name), "F32", t.Shape, nil}
			if len(t.Shape) > 1 && !strings.Contains(s.name, "ffn_gate_inp") && !strings.Contains(s.name, "ssm_conv1d") {
				s.dtype = dtype(s.name)
			}
			s.data = encodeGGUF(s.dtype, t)
			tensors = append(tensors, s)
		}
		return writeGGUFFile(path, heads.metadata(c.Name, head), tensors)
	}
}

// qwen35Heads is a text config as the converter uses it.
type qwen35Heads struct{ config map[string]any }

func (h qwen35Heads) int(key string) int {
	n, _ := h.config[key].(int)
	return n
}

// turned is a tensor with its value heads by turns, and A_log as what it stands for.
func (h qwen35Heads) turned(t Tensor) Tensor {
	_, name, recurrent := strings.Cut(t.Name, "linear_attn.")
	if !recurrent {
		return t
	}
	dim, first, values, columns := h.int("linear_value_head_dim"), 0, slices.Clone(t.Values), t.Shape[len(t.Shape)-1]
	switch name {
	case "in_proj_qkv.weight", "conv1d.weight":
		first = 2 * h.int("linear_num_key_heads") * h.int("linear_key_head_dim")
		columns = len(values) / t.Shape[0]
	case "in_proj_z.weight":
	case "in_proj_b.weight", "in_proj_a.weight":
		dim = 1
	case "A_log", "dt_bias":
		dim, columns = 1, 1
	case "out_proj.weight":
		for row := range slices.Chunk(values, columns) {
			h.turn(row, dim)
		}
	}
	if name != "out_proj.weight" && name != "norm.weight" {
		h.turn(values[first*columns:], dim*columns)
	}
	if name == "A_log" {
		for i, v := range values {
			values[i] = float32(-math.Exp(float64(v)))
		}
	}
	t.Values = values
	return t
}

// turn puts the value heads of a row, size for each, by turns.
func (h qwen35Heads) turn(row []float32, size int) {
	before, keys := slices.Clone(row), h.int("linear_num_key_heads")
	each := h.int("linear_num_value_heads") / keys
	for head := range keys * each {
		to := head%each*keys + head/each
		copy(row[to*size:(to+1)*size], before[head*size:(head+1)*size])
	}
}

// metadata is what the converter says of a model; head: with that of a head.
func (h qwen35Heads) metadata(name string, head bool) []ggufField {
	arch := "qwen35"
	if h.config["num_experts"] != nil {
		arch = "qwen35moe"
	}
	rope := h.config["rope_parameters"].(map[string]any)
	layers, dim := h.int("num_hidden_layers"), h.int("head_dim")
	var out []ggufField
	at := func(suffix string, value any) { out = append(out, ggufField{arch + "." + suffix, value}) }
	out = append(out, ggufField{"general.architecture", arch}, ggufField{"general.name", name}, ggufField{"tokenizer.ggml.model", "none"})
	at("vocab_size", h.int("vocab_size"))
	at("context_length", h.int("max_position_embeddings"))
	at("embedding_length", h.int("hidden_size"))
	at("feed_forward_length", max(h.int("intermediate_size"), h.int("moe_intermediate_size")))
	at("attention.head_count", h.int("num_attention_heads"))
	at("attention.head_count_kv", h.int("num_key_value_heads"))
	at("attention.key_length", dim)
	at("attention.value_length", dim)
	at("attention.layer_norm_rms_epsilon", h.config["rms_norm_eps"])
	at("rope.freq_base", rope["rope_theta"])
	at("rope.dimension_count", int(float64(dim)*rope["partial_rotary_factor"].(float64)))
	at("rope.dimension_sections", append(slices.Clone(rope["mrope_section"].([]int)), 0))
	at("ssm.conv_kernel", h.int("linear_conv_kernel_dim"))
	at("ssm.state_size", h.int("linear_key_head_dim"))
	at("ssm.group_count", h.int("linear_num_key_heads"))
	at("ssm.time_step_rank", h.int("linear_num_value_heads"))
	at("ssm.inner_size", h.int("linear_num_value_heads")*h.int("linear_value_head_dim"))
	if arch == "qwen35moe" {
		at("expert_count", h.int("num_experts"))
		at("expert_used_count", h.int("num_experts_per_tok"))
		at("expert_feed_forward_length", h.int("moe_intermediate_size"))
		at("expert_shared_feed_forward_length", h.int("shared_expert_intermediate_size"))
	}
	if !head {
		at("block_count", layers)
		at("full_attention_interval", h.int("full_attention_interval"))
		return out
	}
	at("block_count", layers+1)
	at("nextn_predict_layers", 1)
	var recurrent []bool
	for i := range layers {
		recurrent = append(recurrent, (i+1)%h.int("full_attention_interval") != 0)
	}
	at("attention.recurrent_layers", append(recurrent, false))
	return out
}
