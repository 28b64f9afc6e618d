package qwen3

import (
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights"
)

// Graph is the generic Qwen 3 of a graph table.
func Graph() engine.Graph {
	return engine.Graph{
		ID: "qwen3", Kernels: []string{kernels.Linear.Name, kernels.Embed.Name, kernels.Attend.Name},
		Read: func(a *artifact.Artifact, parsed artifact.Config) (engine.Blueprint, error) {
			return read(a, parsed, ReadConfig)
		},
	}
}

// MoEGraph is the generic Qwen 3 whose MLPs are mixtures of experts.
func MoEGraph() engine.Graph {
	return engine.Graph{
		ID: "qwen3-moe", Kernels: []string{kernels.Linear.Name, kernels.Embed.Name, kernels.Attend.Name, kernels.Experts.Name, kernels.Mixture.Name},
		Read: func(a *artifact.Artifact, parsed artifact.Config) (engine.Blueprint, error) {
			return read(a, parsed, ReadMoEConfig)
		},
	}
}

func read(a *artifact.Artifact, parsed artifact.Config, config func(artifact.Config) (Config, error)) (engine.Blueprint, error) {
	c, err := config(parsed)
	if err != nil {
		return engine.Blueprint{}, err
	}
	set, err := Match(a, c)
	if err != nil {
		return engine.Blueprint{}, err
	}
	return engine.Blueprint{
		Layout:  engine.Layout{Vocab: c.VocabSize, Caches: c.Caches()},
		Weights: set, EOS: c.EOS, MaxPositions: c.MaxPositions, TokenBytes: c.tokenBytes,
		Adapts: c.adapts,
		Build:  func(s *mlx.Scope, w *weights.Tensors, dtype mlx.DType) engine.Model { return New(s, c, w, dtype) },
	}, nil
}

// adapts are the linear layers of the blocks: the head shares its matrix with the embedding in many checkpoints.
func (c Config) adapts(module string) (string, bool) {
	return module, strings.HasPrefix(module, "model.layers.")
}

// tokenBytes counts what one token of an evaluation holds at the widest place of a block: the residual stream and norms, and
// either attention or the MLP. Stock attention keeps the scores twice, before and after softmax; the kernels widen their input
// to float32 and keep no scores.
func (c Config) tokenBytes(context int, dtype mlx.DType, packed bool) int64 {
	residual, size := 4*int64(c.HiddenSize), int64(dtype.Size())
	heads := int64(c.Heads) * int64(c.HeadDim)
	mixture := int64(0)
	if c.MoE != nil {
		// Each picked expert's row, its activations and its result, all at once: the kernel's in float32.
		mixture = int64(c.MoE.TopK) * (2*int64(c.HiddenSize) + 2*int64(c.MoE.IntermediateSize)) * 4
	}
	if packed {
		held := residual + max(int64(c.Heads+2*c.KVHeads)*int64(c.HeadDim)+heads, int64(c.IntermediateSize))
		return held*size + 4*(max(int64(c.HiddenSize), int64(c.IntermediateSize), heads)+heads) + mixture
	}
	attention := 2*int64(c.Heads)*int64(context) + 4*heads
	mlp := 4 * int64(c.IntermediateSize)
	return (residual+max(attention, mlp))*size + 2*mixture
}
