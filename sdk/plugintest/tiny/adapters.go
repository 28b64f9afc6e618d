package tiny

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
)

// adapterRecipe is one low-rank adapter of the llama checkpoints.
type adapterRecipe struct {
	name    string
	peft    bool
	rank    int
	config  map[string]any
	layers  []int
	targets []string
}

// targets and their sizes, [out, in], of a llama checkpoint.
var llamaTargets = map[string][2]int{
	"self_attn.q_proj": {llamaHidden, llamaHidden}, "self_attn.k_proj": {llamaHidden / 2, llamaHidden},
	"self_attn.v_proj": {llamaHidden / 2, llamaHidden}, "self_attn.o_proj": {llamaHidden, llamaHidden},
	"mlp.gate_proj": {llamaInter, llamaHidden}, "mlp.up_proj": {llamaInter, llamaHidden}, "mlp.down_proj": {llamaHidden, llamaInter},
}

// LlamaAdapters lists adapters that fit every llama checkpoint of the common sizes, as mlx-lm and PEFT store them. With names only
// those are drawn.
func LlamaAdapters(names ...string) []Checkpoint {
	attention := []string{"self_attn.q_proj", "self_attn.v_proj"}
	all := []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
	mlx := func(rank int, scale float64, layers int, keys []string) map[string]any {
		return map[string]any{
			"fine_tune_type": "lora", "num_layers": layers, "model": "tiny",
			"lora_parameters": map[string]any{"rank": rank, "scale": scale, "dropout": 0.0, "keys": keys},
		}
	}
	peft := func(rank, alpha int, rooted bool, targets []string) map[string]any {
		return map[string]any{
			"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "tiny", "r": rank, "lora_alpha": alpha, "use_rslora": rooted,
			"target_modules": targets, "bias": "none", "fan_in_fan_out": false, "use_dora": false, "modules_to_save": nil,
			"rank_pattern": map[string]any{}, "alpha_pattern": map[string]any{}, "lora_dropout": 0.0, "inference_mode": true,
		}
	}
	recipes := []adapterRecipe{
		{"mlx-attention", false, 4, mlx(4, 4, 2, attention), []int{2, 3}, attention},
		{"mlx-all", false, 8, mlx(8, 2, 4, all), []int{0, 1, 2, 3}, all},
		{"peft-attention", true, 5, peft(5, 20, false, []string{"q_proj", "v_proj"}), []int{0, 1, 2, 3}, attention},
		{"peft-all", true, 6, peft(6, 5, true, []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}), []int{0, 1, 2, 3}, all},
	}
	var out []Checkpoint
	for _, r := range recipes {
		if len(names) == 0 || slices.Contains(names, r.name) {
			out = append(out, r.checkpoint())
		}
	}
	return out
}

func (r adapterRecipe) checkpoint() Checkpoint {
	c := Checkpoint{Name: r.name, Config: r.config, store: adapterStore("adapters.safetensors")}
	if r.peft {
		c.store = adapterStore("adapter_model.safetensors")
	}
	add := func(name string, deviation float64, rows, cols int) {
		c.Tensors = append(c.Tensors, Tensor{name, []int{rows, cols}, gaussian(77, r.name+name, rows*cols, 0, deviation)})
	}
	for _, layer := range r.layers {
		for _, target := range r.targets {
			path, size := fmt.Sprintf("model.layers.%d.%s", layer, target), llamaTargets[target]
			a, b := 1/math.Sqrt(float64(size[1])), 0.15/math.Sqrt(float64(r.rank))
			if r.peft {
				add("base_model.model."+path+".lora_A.weight", a, r.rank, size[1])
				add("base_model.model."+path+".lora_B.weight", b, size[0], r.rank)
			} else {
				add(path+".lora_a", a, size[1], r.rank)
				add(path+".lora_b", b, r.rank, size[0])
			}
		}
	}
	return c
}

// adapterStore stores a config and float32 tensors under an adapter's file names.
func adapterStore(weights string) func(Checkpoint, string) error {
	return func(c Checkpoint, dir string) error {
		if err := safetensors("F32")(c, dir); err != nil {
			return err
		}
		for from, to := range map[string]string{"config.json": "adapter_config.json", "model.safetensors": weights} {
			if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
				return err
			}
		}
		return nil
	}
}

// Adapter stores tensors as an adapter of rank 4: as PEFT does, or mlx-lm. Tensors without values are drawn.
func Adapter(name string, peft bool, tensors ...Tensor) Checkpoint {
	c := Checkpoint{Name: name, Tensors: tensors, store: adapterStore("adapters.safetensors")}
	c.Config = map[string]any{"fine_tune_type": "lora", "num_layers": -1, "lora_parameters": map[string]any{"rank": 4, "scale": 2.0, "dropout": 0.0}}
	if peft {
		c.Config = map[string]any{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", "target_modules": "all-linear"}
		c.store = adapterStore("adapter_model.safetensors")
	}
	for i, t := range c.Tensors {
		n := 1
		for _, d := range t.Shape {
			n *= d
		}
		if t.Values == nil {
			c.Tensors[i].Values = gaussian(78, name+t.Name, n, 0, 0.3)
		}
	}
	return c
}
