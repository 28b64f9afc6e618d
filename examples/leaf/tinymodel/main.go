// Command tinymodel writes a small random model of the family: it says nothing, and everything of the plugin runs on it.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights/quant"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "tinymodel: the folder to write is needed")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "tinymodel:", err)
		os.Exit(1)
	}
}

const (
	hidden, inter, layers   = 64, 128, 2
	heads, kvHeads, headDim = 4, 2, 16
)

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	config, err := json.MarshalIndent(map[string]any{
		"model_type": "leaf", "hidden_size": hidden, "intermediate_size": inter, "num_hidden_layers": layers, "num_attention_heads": heads,
		"num_key_value_heads": kvHeads, "vocab_size": tiny.ByteVocab, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
		"rope_theta": 10000.0, "eos_token_id": tiny.ByteEnd,
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644); err != nil {
		return err
	}
	if err := tiny.WriteByteTokenizer(dir); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var tensors []artifact.NewTensor
	add := func(name string, mean, deviation float64, shape ...int64) {
		n := int64(1)
		for _, d := range shape {
			n *= d
		}
		data := make([]byte, 0, 2*n)
		for range n {
			half := quant.ToBF16(float32(mean + deviation*rng.NormFloat64()))
			data = append(data, byte(half), byte(half>>8))
		}
		tensors = append(tensors, artifact.NewTensor{Name: name + ".weight", DType: artifact.BF16, Shape: shape, Data: data})
	}
	add("embed", 0, 0.1, tiny.ByteVocab, hidden)
	add("norm", 1, 0.1, hidden)
	for i := range layers {
		layer := fmt.Sprintf("layers.%d.", i)
		add(layer+"attention_norm", 1, 0.1, hidden)
		add(layer+"q_proj", 0, 0.125, heads*headDim, hidden)
		add(layer+"k_proj", 0, 0.125, kvHeads*headDim, hidden)
		add(layer+"v_proj", 0, 0.125, kvHeads*headDim, hidden)
		add(layer+"o_proj", 0, 0.125, hidden, heads*headDim)
		add(layer+"mlp_norm", 1, 0.1, hidden)
		add(layer+"up_proj", 0, 0.125, inter, hidden)
		add(layer+"down_proj", 0, 0.09, hidden, inter)
	}
	return artifact.WriteSafetensors(filepath.Join(dir, "model.safetensors"), tensors, map[string]string{"format": "pt"})
}
