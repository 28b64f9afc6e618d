package tiny

import (
	"fmt"
	"maps"
	"strings"
)

// qwen35MoE are the text settings of a mixture.
func qwen35MoE(more map[string]any) map[string]any {
	out := map[string]any{
		"model_type": "qwen3_5_moe_text", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
		"shared_expert_intermediate_size": 48, "intermediate_size": nil,
	}
	maps.Copy(out, more)
	return out
}

// Qwen35MoE lists the checkpoints of the qwen3.5-moe graph, with experts in one tensor, gate and up fused, or one by one.
func Qwen35MoE(names ...string) []Checkpoint {
	many := map[string]any{"num_experts": 32, "num_experts_per_tok": 4, "norm_topk_prob": false, "num_hidden_layers": 2, "full_attention_interval": 2}
	return qwen35Checkpoints(names, []qwen35Recipe{
		{"qwen35-moe-hf", qwen35MoE(nil), hfExperts(hfLayout(false)), safetensors("F32"), false, nil},
		{"qwen35-moe-hf-mtp", qwen35MoE(nil), hfExperts(hfLayout(true)), safetensors("F32"), false, nil},
		{"qwen35-moe-hf-bf16", qwen35MoE(nil), hfExperts(hfLayout(true)), mostlyBF16, false, nil},
		{"qwen35-moe-mlx", qwen35MoE(nil), mlxLayout(false), safetensors("F32"), false, nil},
		{"qwen35-moe-mlx-mtp", qwen35MoE(nil), mlxLayout(true), safetensors("F32"), false, nil},
		{"qwen35-moe-32", qwen35MoE(many), hfExperts(flatLayout), safetensors("F32"), true, nil},
		// No whole panels: the experts are arrays beside packed matrices.
		{"qwen35-moe-narrow", qwen35MoE(map[string]any{"moe_intermediate_size": 24}), hfExperts(hfLayout(false)), safetensors("F32"), false, nil},
		{"qwen35-moe-affine4", qwen35MoE(quantized(32, 4, gates8(4), map[string]any{"shared_expert_intermediate_size": 64})), mlxLayout(true), quantizedStore, false, nil},
	})
}

// Qwen35MoESingle is qwen35-moe-hf-mtp as mlx-vlm reads it too: expert by expert, those of the head included.
func Qwen35MoESingle() Checkpoint {
	return qwen35Recipe{"qwen35-moe-single", qwen35MoE(nil), singleExperts(hfLayout(true)), safetensors("F32"), false, nil}.checkpoint()
}

// singleExperts stores the experts of a layout one by one.
func singleExperts(layout func([]Tensor) []Tensor) func([]Tensor) []Tensor {
	return func(model []Tensor) []Tensor {
		var out []Tensor
		for _, t := range layout(model) {
			out = append(out, split(t)...)
		}
		return out
	}
}

// gates8 are the entries of routers and gates as mlx-lm quantizes them, in every layer.
func gates8(layers int) map[string]any {
	out := map[string]any{}
	for i := range layers {
		for _, name := range []string{"gate", "shared_expert_gate"} {
			out[fmt.Sprintf("language_model.model.layers.%d.mlp.%s", i, name)] = map[string]any{"group_size": 64, "bits": 8}
		}
	}
	return out
}

// hfExperts stores the experts of a layout as Hugging Face does: gate and up in one tensor, and no ".weight".
func hfExperts(layout func([]Tensor) []Tensor) func([]Tensor) []Tensor {
	return func(model []Tensor) []Tensor {
		var out []Tensor
		ups := map[string]Tensor{}
		for _, t := range model {
			if layer, ok := strings.CutSuffix(t.Name, "switch_mlp.up_proj.weight"); ok {
				ups[layer] = t
			}
		}
		for _, t := range layout(model) {
			layer, name, routed := strings.Cut(t.Name, "switch_mlp.")
			switch name = strings.TrimSuffix(name, ".weight"); {
			case routed && name == "up_proj":
				continue
			case routed && name == "gate_proj":
				// The layout renames what is before: the model's own tensor has the same place in it.
				up := ups[strings.Replace(layer, "model.language_model.", "model.", 1)]
				n, rows := t.Shape[0], t.Shape[1]
				each := rows * t.Shape[2]
				var both []float32
				for e := range n {
					both = append(append(both, t.Values[e*each:(e+1)*each]...), up.Values[e*each:(e+1)*each]...)
				}
				t = Tensor{layer + "experts.gate_up_proj", []int{n, 2 * rows, t.Shape[2]}, both}
			case routed:
				t.Name = layer + "experts." + name
			}
			out = append(out, t)
		}
		return out
	}
}
