package tiny

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Tensor is a named float32 tensor, row-major, before it is stored.
type Tensor struct {
	Name   string
	Shape  []int
	Values []float32
}

// Checkpoint is a tiny model and the way it is stored.
type Checkpoint struct {
	Name    string
	Config  map[string]any
	Tensors []Tensor
	store   func(c Checkpoint, dir string) error
	// Format is what a safetensors header says of itself: "mlx" when empty, "pt" as Hugging Face writes it.
	Format string
}

// Write stores the checkpoint below dir: a directory NAME with config.json and model.safetensors, or a file NAME.gguf. It
// returns the path that opens it.
func (c Checkpoint) Write(dir string) (string, error) {
	path := filepath.Join(dir, c.Name)
	if err := c.store(c, path); err != nil {
		return "", fmt.Errorf("write tiny checkpoint %s: %w", c.Name, err)
	}
	return path, nil
}

// WriteAll stores every checkpoint below dir and returns their paths by name.
func WriteAll(dir string, checkpoints []Checkpoint) (map[string]string, error) {
	paths := map[string]string{}
	for _, c := range checkpoints {
		path, err := c.Write(dir)
		if err != nil {
			return nil, err
		}
		paths[c.Name] = path
	}
	return paths, nil
}

// Prompt is the ids every golden is made from: n ids below vocab that repeat no short pattern.
func Prompt(n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i*i*31 + i*7 + 11) % vocab)
	}
	return ids
}

// gaussian draws values of mean and deviation from a generator that only seed and name decide. A sum of twelve uniforms is
// close enough to a normal distribution and needs no logarithm, whose last bit differs between platforms.
func gaussian(seed uint64, name string, n int, mean, deviation float64) []float32 {
	h := fnv.New64a()
	h.Write([]byte(name))
	rng := rand.New(rand.NewPCG(seed, h.Sum64()))
	out := make([]float32, n)
	for i := range out {
		sum := -6.0
		for range 12 {
			sum += rng.Float64()
		}
		out[i] = float32(mean + deviation*sum)
	}
	return out
}

func writeConfig(dir string, config map[string]any) error {
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644)
}
