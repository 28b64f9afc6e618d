package llama

import (
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights"
)

// Graph is the generic llama of a graph table.
func Graph() engine.Graph {
	return engine.Graph{ID: "llama", Kernels: []string{engine.LinearQuantized.Name}, Read: read}
}

func read(a *artifact.Artifact, parsed artifact.Config) (engine.Blueprint, error) {
	c, err := ReadConfig(parsed)
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
		Build: func(s *mlx.Scope, w *weights.Tensors, dtype mlx.DType) engine.Model { return New(s, c, w, dtype) },
	}, nil
}

// tokenBytes counts what one token of an evaluation holds at the widest place of a block: the residual stream and norms, and
// either the scores of the stock attention (twice, before and after softmax) or the MLP's three rows.
func (c Config) tokenBytes(context int, dtype mlx.DType) int64 {
	residual := 4 * int64(c.HiddenSize)
	attention := 2*int64(c.Heads)*int64(context) + 3*int64(c.Heads)*int64(c.HeadDim)
	mlp := 4 * int64(c.IntermediateSize)
	return (residual + max(attention, mlp)) * int64(dtype.Size())
}
