package tiny

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// qwen35Recipe is one qwen3.5 checkpoint: what its text config says beyond the base, the layout of its tensors, and how they are
// stored.
type qwen35Recipe struct {
	name   string
	text   map[string]any
	layout func(model []Tensor) []Tensor
	store  func(c Checkpoint, path string) error
	flat   bool                 // the config is the text model's alone
	change func(model []Tensor) // nil: none
}

// Qwen35 lists the checkpoints of the qwen3.5 graph, in Hugging Face's layout and in MLX's, with and without MTP tensors. With names
// only those are drawn, in their own order.
func Qwen35(names ...string) []Checkpoint {
	// Heads of other widths, an odd convolution and interval, biases.
	odd := map[string]any{
		"num_hidden_layers": 5, "full_attention_interval": 2, "linear_conv_kernel_dim": 3, "linear_key_head_dim": 24, "linear_value_head_dim": 16,
		"linear_num_value_heads": 3, "linear_num_key_heads": 3, "attention_bias": true, "head_dim": 16, "tie_word_embeddings": true,
	}
	// As wide as real heads.
	wide := map[string]any{
		"linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_value_heads": 2, "linear_num_key_heads": 1, "head_dim": 64,
	}
	recipes := []qwen35Recipe{
		{"qwen35-hf", nil, hfLayout(false), safetensors("F32"), false, nil},
		{"qwen35-hf-mtp", nil, hfLayout(true), safetensors("F32"), false, nil},
		{"qwen35-hf-bf16", nil, hfLayout(false), mostlyBF16, false, nil},
		{"qwen35-mlx", nil, mlxLayout(false), safetensors("F32"), false, nil},
		{"qwen35-mlx-mtp", nil, mlxLayout(true), safetensors("F32"), false, nil},
		{"qwen35-odd", odd, flatLayout, safetensors("F32"), true, nil},
		{"qwen35-wide", wide, hfLayout(true), safetensors("F32"), false, nil},
		{"qwen35-affine4", quantized(32, 4, nil, nil), mlxLayout(true), quantizedStore, false, nil},
		{"qwen35-affine8", quantized(64, 8, nil, nil), mlxLayout(false), quantizedStore, false, nil},
		{"qwen35-agrees", nil, hfLayout(true), safetensors("F32"), false, agree},
	}
	return qwen35Checkpoints(names, recipes)
}

func qwen35Checkpoints(names []string, recipes []qwen35Recipe) []Checkpoint {
	var out []Checkpoint
	for _, r := range recipes {
		if len(names) == 0 || slices.Contains(names, r.name) {
			out = append(out, r.checkpoint())
		}
	}
	return out
}

func (r qwen35Recipe) checkpoint() Checkpoint {
	text := map[string]any{
		"model_type": "qwen3_5_text", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 256, "rms_norm_eps": 1e-6,
		"max_position_embeddings": 512, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32,
		"linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "hidden_act": "silu",
		"attention_bias": false, "tie_word_embeddings": false, "eos_token_id": 2, "mtp_num_hidden_layers": 1,
		"rope_parameters": map[string]any{
			"rope_type": "default", "rope_theta": 100000.0, "partial_rotary_factor": 0.25, "mrope_section": []int{2, 1, 1},
		},
	}
	config := map[string]any{"model_type": "qwen3_5", "architectures": []string{"Qwen3_5ForConditionalGeneration"}}
	for k, v := range r.text {
		if strings.HasPrefix(k, "quantization") {
			config[k] = v
		} else {
			text[k] = v
		}
	}
	maps.DeleteFunc(text, func(_ string, v any) bool { return v == nil })
	if text["num_experts"] != nil {
		config["model_type"], config["architectures"] = "qwen3_5_moe", []string{"Qwen3_5MoeForConditionalGeneration"}
	}
	if r.flat {
		maps.Copy(text, config)
		config = text
	} else {
		config["text_config"], config["tie_word_embeddings"] = text, text["tie_word_embeddings"]
	}
	tensors := qwen35Tensors(text)
	if r.change != nil {
		r.change(tensors)
	}
	c := Checkpoint{Name: r.name, Config: config, Tensors: r.layout(tensors), store: r.store}
	if strings.HasPrefix(c.Tensors[0].Name, "model.") {
		c.Format = "pt"
	}
	return c
}

// qwen35Tensors draws the weights under the names of a bare text model in MLX's layout, MTP tensors included.
func qwen35Tensors(c map[string]any) []Tensor {
	d := drawing{seed: 20263}
	n := func(key string) int { return c[key].(int) }
	hidden, vocab := n("hidden_size"), n("vocab_size")
	keys, values := n("linear_num_key_heads")*n("linear_key_head_dim"), n("linear_num_value_heads")*n("linear_value_head_dim")
	heads := n("linear_num_value_heads")

	d.add("model.embed_tokens.weight", 0, 0.1, vocab, hidden)
	for i := range n("num_hidden_layers") {
		layer := fmt.Sprintf("model.layers.%d.", i)
		if (i+1)%n("full_attention_interval") == 0 {
			d.qwen35Attention(layer, c)
			continue
		}
		d.norm(layer+"input_layernorm", hidden)
		mix := layer + "linear_attn."
		d.matrix(mix+"in_proj_qkv", 2*keys+values, hidden)
		d.matrix(mix+"in_proj_z", values, hidden)
		d.matrix(mix+"in_proj_b", heads, hidden)
		d.matrix(mix+"in_proj_a", heads, hidden)
		// Wide enough that the gate makes most of it positive: a first query and key that are at right angles make its result noise.
		d.add(mix+"conv1d.weight", 0, 1.5, 2*keys+values, n("linear_conv_kernel_dim"), 1)
		d.add(mix+"A_log", 1, 0.8, heads)
		d.add(mix+"dt_bias", -2, 1, heads)
		d.norm(mix+"norm", n("linear_value_head_dim"))
		d.matrix(mix+"out_proj", hidden, values)
		d.qwen35MLP(layer, c)
	}
	d.norm("model.norm", hidden)
	if c["tie_word_embeddings"] == false {
		d.matrix("lm_head", vocab, hidden)
	}
	d.matrix("mtp.fc", hidden, 2*hidden)
	d.norm("mtp.pre_fc_norm_embedding", hidden)
	d.norm("mtp.pre_fc_norm_hidden", hidden)
	d.qwen35Attention("mtp.layers.0.", c)
	d.norm("mtp.norm", hidden)
	return d.tensors
}

// qwen35Attention draws a layer of gated attention.
func (d *drawing) qwen35Attention(layer string, c map[string]any) {
	hidden, dim := c["hidden_size"].(int), c["head_dim"].(int)
	heads, kvHeads := c["num_attention_heads"].(int), c["num_key_value_heads"].(int)
	d.norm(layer+"input_layernorm", hidden)
	for _, m := range []struct {
		name       string
		rows, cols int
	}{
		{"q_proj", 2 * heads * dim, hidden}, {"k_proj", kvHeads * dim, hidden}, {"v_proj", kvHeads * dim, hidden}, {"o_proj", hidden, heads * dim},
	} {
		d.matrix(layer+"self_attn."+m.name, m.rows, m.cols)
		if c["attention_bias"] == true {
			d.add(layer+"self_attn."+m.name+".bias", 0, 0.1, m.rows)
		}
	}
	d.norm(layer+"self_attn.q_norm", dim)
	d.norm(layer+"self_attn.k_norm", dim)
	d.qwen35MLP(layer, c)
}

func (d *drawing) qwen35MLP(layer string, c map[string]any) {
	hidden := c["hidden_size"].(int)
	d.norm(layer+"post_attention_layernorm", hidden)
	mlp := func(path string, inter int) {
		d.matrix(path+"gate_proj", inter, hidden)
		d.matrix(path+"up_proj", inter, hidden)
		d.matrix(path+"down_proj", hidden, inter)
	}
	experts, mixture := c["num_experts"].(int)
	if !mixture {
		mlp(layer+"mlp.", c["intermediate_size"].(int))
		return
	}
	width := c["moe_intermediate_size"].(int)
	d.matrix(layer+"mlp.gate", experts, hidden)
	d.add(layer+"mlp.switch_mlp.gate_proj.weight", 0, 1/math.Sqrt(float64(hidden)), experts, width, hidden)
	d.add(layer+"mlp.switch_mlp.up_proj.weight", 0, 1/math.Sqrt(float64(hidden)), experts, width, hidden)
	d.add(layer+"mlp.switch_mlp.down_proj.weight", 0, 1/math.Sqrt(float64(width)), experts, hidden, width)
	mlp(layer+"mlp.shared_expert.", c["shared_expert_intermediate_size"].(int))
	d.matrix(layer+"mlp.shared_expert_gate", 1, hidden)
}

// drawing collects tensors: matrices of the deviation 1/sqrt(in), norms around 1.
type drawing struct {
	seed    uint64
	tensors []Tensor
}

func (d *drawing) add(name string, mean, deviation float64, shape ...int) {
	n := 1
	for _, s := range shape {
		n *= s
	}
	d.tensors = append(d.tensors, Tensor{name, shape, gaussian(d.seed, name, n, mean, deviation)})
}

func (d *drawing) matrix(path string, rows, cols int) {
	d.add(path+".weight", 0, 1/math.Sqrt(float64(cols)), rows, cols)
}

func (d *drawing) norm(path string, width int) { d.add(path+".weight", 1, 0.1, width) }

// shifted are the norms that Hugging Face stores less 1: all but the one behind the recurrence.
func shifted(name string) bool {
	return strings.HasSuffix(name, "norm.weight") && !strings.Contains(name, "linear_attn.") || strings.Contains(name, "pre_fc_norm_")
}

// hfLayout is Hugging Face's: the text model below model.language_model, convolutions [C, 1, K], norms less 1, a vision tower.
func hfLayout(mtp bool) func([]Tensor) []Tensor {
	return func(model []Tensor) []Tensor {
		var out []Tensor
		for _, t := range model {
			if strings.HasPrefix(t.Name, "mtp.") && !mtp {
				continue
			}
			if shifted(t.Name) {
				t.Values = slices.Clone(t.Values)
				for i := range t.Values {
					t.Values[i]--
				}
			}
			if strings.HasSuffix(t.Name, "conv1d.weight") {
				t.Shape = []int{t.Shape[0], 1, t.Shape[1]}
			}
			if rest, ok := strings.CutPrefix(t.Name, "model."); ok {
				t.Name = "model.language_model." + rest
			}
			out = append(out, t)
		}
		return append(out, Tensor{"model.visual.pos_embed.weight", []int{32}, make([]float32, 32)})
	}
}

// mlxLayout is what mlx-lm and mlx-vlm save; a head that stays with its model keeps its names.
func mlxLayout(mtp bool) func([]Tensor) []Tensor {
	return func(model []Tensor) []Tensor {
		var out []Tensor
		for _, t := range model {
			if head := strings.HasPrefix(t.Name, "mtp."); head && !mtp {
				continue
			} else if !head {
				t.Name = "language_model." + t.Name
			}
			out = append(out, t)
		}
		return append(out, Tensor{"vision_tower.pos_embed.weight", []int{32}, make([]float32, 32)})
	}
}

// flatLayout is a text model alone, in Hugging Face's layout.
func flatLayout(model []Tensor) []Tensor {
	var out []Tensor
	for _, t := range hfLayout(false)(model) {
		t.Name = strings.Replace(t.Name, "model.language_model.", "model.", 1)
		out = append(out, t)
	}
	return out
}

// mostlyBF16 stores every tensor as BF16 but A_log, which trained checkpoints hold as F32.
func mostlyBF16(c Checkpoint, dir string) error {
	var tensors []stored
	for _, t := range c.Tensors {
		dtype := "BF16"
		if strings.HasSuffix(t.Name, "A_log") {
			dtype = "F32"
		}
		tensors = append(tensors, stored{t.Name, dtype, t.Shape, encode(dtype, t.Values)})
	}
	return writeSafetensors(c, dir, tensors)
}
