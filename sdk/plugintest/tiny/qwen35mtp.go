package tiny

import (
	"slices"
	"strings"
)

// agree makes a random model and its head say the same more often than not: what a token adds to its own embedding is little, the output
// knows a successor of every embedding, and the head takes the embedding of the last token and adds as little.
func agree(model []Tensor) {
	byName := map[string]Tensor{}
	for i, t := range model {
		for _, end := range []string{".o_proj.weight", ".out_proj.weight", ".down_proj.weight"} {
			if strings.HasSuffix(t.Name, end) {
				for j := range model[i].Values {
					model[i].Values[j] *= 0.05
				}
			}
		}
		byName[t.Name] = t
	}
	embed, output, fc := byName["model.embed_tokens.weight"], byName["lm_head.weight"], byName["mtp.fc.weight"]
	vocab, hidden := embed.Shape[0], embed.Shape[1]
	for id := range vocab {
		copy(output.Values[(id*37+11)%vocab*hidden:][:hidden], embed.Values[id*hidden:][:hidden])
	}
	for r := range hidden {
		for c := range 2 * hidden {
			fc.Values[r*2*hidden+c] *= 0.02
			if r == c {
				fc.Values[r*2*hidden+c]++
			}
		}
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
