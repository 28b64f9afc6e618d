package tiny

import (
	"slices"
	"strings"
)

// agree makes a random model and its head say the same more often than not: what a token adds to its own embedding is little, the output
// knows a successor of every embedding, and the head takes the embedding of the last token and adds as little.
func agree(model []Tensor) {
	succeed(model, 0.05, func(id, vocab int) int { return (id*37 + 11) % vocab })
}

// succeed makes a model answer with the successor of its last token; negative: with none. So does its head, if it has one. Behind
// layers that add to the residual stream scaled by noise, that is likely.
func succeed(model []Tensor, noise float32, successor func(id, vocab int) int) {
	byName := map[string]Tensor{}
	for _, t := range model {
		for _, end := range []string{".o_proj.weight", ".out_proj.weight", ".down_proj.weight"} {
			if strings.HasSuffix(t.Name, end) {
				scale(t.Values, noise)
			}
		}
		byName[t.Name] = t
	}
	embed, output := byName["model.embed_tokens.weight"], byName["lm_head.weight"]
	vocab, hidden := embed.Shape[0], embed.Shape[1]
	scale(output.Values, 0)
	for id := range vocab {
		if next := successor(id, vocab); next >= 0 {
			for i, v := range embed.Values[id*hidden:][:hidden] {
				output.Values[next*hidden+i] += v
			}
		}
	}
	if fc, ok := byName["mtp.fc.weight"]; ok {
		scale(fc.Values, noise/2)
		for r := range hidden {
			fc.Values[r*2*hidden+r]++
		}
	}
}

func scale(values []float32, by float32) {
	for i := range values {
		values[i] *= by
	}
}

// Qwen35Heads lists the MTP heads that lie beside a model: that of the checkpoint called of, as Hugging Face names and stores it, and as
// mlx-vlm splits it off.
func Qwen35Heads(of string) []Checkpoint {
	c := append(Qwen35(of), Qwen35MoE(of)...)[0]
	text, _ := c.Config["text_config"].(map[string]any)
	config := map[string]any{"model_type": "qwen3_5_mtp", "block_size": 3, "tie_word_embeddings": false, "text_config": text}
	var hf, mlx []Tensor
	for _, t := range c.Tensors {
		name, ok := strings.CutPrefix(t.Name, "mtp.")
		if !ok {
			continue
		}
		hf = append(hf, t)
		if shifted(t.Name) {
			t.Values = slices.Clone(t.Values)
			for i := range t.Values {
				t.Values[i]++
			}
		}
		t.Name = name
		mlx = append(mlx, t)
	}
	return []Checkpoint{
		{Name: of + "-head-hf", Config: config, Tensors: hf, store: safetensors("F32"), Format: "pt"},
		{Name: of + "-head-mlx", Config: config, Tensors: mlx, store: safetensors("F32")},
	}
}
