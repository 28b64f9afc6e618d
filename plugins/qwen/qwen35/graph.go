package qwen35

import (
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights"
)

// Graph is the generic Qwen 3.5 of a graph table.
func Graph() engine.Graph {
	return engine.Graph{
		ID: "qwen3.5", Kernels: []string{kernels.Linear.Name, kernels.Embed.Name, kernels.Attend.Name, kernels.GatedDelta.Name},
		Read: func(a *artifact.Artifact, parsed artifact.Config) (engine.Blueprint, error) {
			return read(a, parsed, ReadConfig)
		},
		Heads: heads(ReadConfig),
	}
}

// MoEGraph is the generic Qwen 3.5 whose MLPs are mixtures of experts.
func MoEGraph() engine.Graph {
	return engine.Graph{
		ID:      "qwen3.5-moe",
		Kernels: []string{kernels.Linear.Name, kernels.Embed.Name, kernels.Attend.Name, kernels.GatedDelta.Name, kernels.Experts.Name, kernels.Mixture.Name},
		Read: func(a *artifact.Artifact, parsed artifact.Config) (engine.Blueprint, error) {
			return read(a, parsed, ReadMoEConfig)
		},
		Heads: heads(ReadMoEConfig),
	}
}

func read(a *artifact.Artifact, parsed artifact.Config, config func(artifact.Config) (Config, error)) (engine.Blueprint, error) {
	c, err := config(parsed)
	if err != nil {
		return engine.Blueprint{}, err
	}
	set, l, err := match(a, c)
	if err != nil {
		return engine.Blueprint{}, err
	}
	c.turned = l.gguf && c.Delta.KeyHeads != c.Delta.ValueHeads
	return engine.Blueprint{
		Layout:  engine.Layout{Vocab: c.VocabSize, Caches: c.Caches()},
		Weights: set, EOS: c.EOS, MaxPositions: c.MaxPositions, TokenBytes: c.tokenBytes,
		Adapts: c.adapts,
		Build: func(s *mlx.Scope, w *weights.Tensors, dtype mlx.DType) engine.Model {
			return newModel(s, c, l, w, dtype)
		},
	}, nil
}

// adapts are the linear layers of the blocks, under the names of any layout. Those of a recurrence whose value heads lie in another order
// than where adapters are made take none.
func (c Config) adapts(module string) (string, bool) {
	path := c.graphName(module)
	if c.turned && strings.Contains(path, ".linear_attn.") {
		return path, false
	}
	return path, strings.HasPrefix(path, "language_model.model.layers.") && !strings.HasSuffix(path, ".q_gate") // a half of q_proj
}

// stateCopies is how many arrays of the state's size one token takes in MLX's operations: the decayed state, its products with the
// key and the query, the update and the sum.
const stateCopies = 5

// tokenBytes counts what one token of an evaluation holds at the widest place of a block: the residual stream and norms, and the
// widest of attention, recurrence and MLP. Stock attention keeps the scores twice, before and after softmax, and the stock recurrence
// a token's states: MLX's CPU device allocates ahead of what it computes. The kernels widen their input to float32 and keep neither.
func (c Config) tokenBytes(context int, dtype mlx.DType, packed bool) int64 {
	residual, size := 4*int64(c.HiddenSize), int64(dtype.Size())
	heads := int64(c.Heads) * int64(c.HeadDim)
	qkv := int64(2*c.Heads+2*c.KVHeads) * int64(c.HeadDim)
	delta := 3 * int64(c.Delta.Width())
	if c.turned {
		delta += 3 * int64(c.Delta.Width()) // parts, and all, in the other order
	}
	state := int64(c.Delta.ValueHeads) * int64(c.Delta.KeyDim) * int64(c.Delta.ValueDim)
	width, mixture := int64(c.IntermediateSize), int64(0)
	if m := c.MoE; m != nil {
		// Each picked expert's row, its activations and its result, all at once: the kernel's in float32.
		width = int64(m.SharedSize)
		mixture = int64(m.TopK) * (2*int64(c.HiddenSize) + 2*int64(m.IntermediateSize)) * 4
	}
	if packed {
		held := residual + max(2*qkv+heads, delta, width)
		return held*size + 4*(max(int64(c.HiddenSize), width, heads)+max(heads, int64(c.Delta.Width()))) + mixture
	}
	attention := 2*int64(c.Heads)*int64(context) + 2*qkv + 4*heads
	return (residual+max(attention, 2*delta, 4*width))*size + stateCopies*4*state + 2*mixture
}
