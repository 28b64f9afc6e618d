package tiny

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Qwen35Adapters lists low-rank adapters of qwen3.5 checkpoints, named BASE.mlx and BASE.peft: mlx-lm's change every linear layer of the
// blocks but experts, PEFT's the attention. With bases only theirs are drawn.
func Qwen35Adapters(bases ...string) []Checkpoint {
	if len(bases) == 0 {
		bases = []string{"qwen35-hf", "qwen35-odd", "qwen35-affine4", "qwen35-moe-hf"}
	}
	var out []Checkpoint
	for _, base := range append(Qwen35(bases...), Qwen35MoE(bases...)...) {
		if !slices.Contains(bases, base.Name) {
			continue
		}
		mlx := adapterOf(base, "mlx", func(string) bool { return true })
		peft := adapterOf(base, "peft", func(path string) bool { return strings.Contains(path, "self_attn.") })
		out = append(out, mlx, peft)
	}
	return out
}

// adapterOf changes the linear layers of a model's blocks that targeted says.
func adapterOf(base Checkpoint, format string, targeted func(path string) bool) Checkpoint {
	const rank = 4
	name, peft := base.Name+"."+format, format == "peft"
	var tensors []Tensor
	add := func(path string, deviation float64, shape ...int) {
		tensors = append(tensors, Tensor{path, shape, gaussian(79, name+path, shape[0]*shape[1], 0, deviation)})
	}
	for _, t := range base.Tensors {
		path, matrix := strings.CutSuffix(t.Name, ".weight")
		if !matrix || len(t.Shape) != 2 || !strings.Contains(path, ".layers.") || strings.HasPrefix(path, "mtp.") || !targeted(path) {
			continue
		}
		rows, cols := t.Shape[0], t.Shape[1]
		a, b := 1/math.Sqrt(float64(cols)), 0.15/math.Sqrt(rank)
		if peft {
			add("base_model.model."+path+".lora_A.weight", a, rank, cols)
			add("base_model.model."+path+".lora_B.weight", b, rows, rank)
			continue
		}
		_, block, _ := strings.Cut(path, ".layers.")
		add(fmt.Sprintf("language_model.model.layers.%s.lora_a", block), a, cols, rank)
		add(fmt.Sprintf("language_model.model.layers.%s.lora_b", block), b, rank, rows)
	}
	return Adapter(name, peft, tensors...)
}
