package qwen3

import (
	"fmt"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

const (
	// chainedDevice is the processor that ChainedGraph was written and measured for.
	chainedDevice = "cpu-x86_64-avx512"
	// chainedBytes is the most that weights may take: beyond it a step waits for memory, not for operations, and prompts are a
	// tenth slower (bench -only qwen: 0.97 of the generic graph's decoding and 0.90 of its prefill at 0.6B in 4 bits, 1.05 and 1.00
	// at 150M).
	chainedBytes = 128 << 20
)

// ChainedGraph is the dense Qwen 3 in two operations a layer: attention, and all that stands between it and the next one. Its values are
// the generic graph's, bit for bit; it is chosen for small models, whose steps
// wait for operations more than for memory.
func ChainedGraph() engine.Graph {
	g := Graph()
	generic := g.Read
	g.ID, g.Serves = "qwen3-avx512-chained", &cladev1.GraphKey{Device: new(chainedDevice)}
	g.Kernels = append(g.Kernels, kernels.LinearChain.Name)
	g.Suits = func(set *weights.Set, target weights.Target) string {
		return chainedSuits(set.StoredBytes(), target.Kernels != nil)
	}
	g.Read = func(a *artifact.Artifact, parsed artifact.Config) (engine.Blueprint, error) {
		b, err := generic(a, parsed)
		build := b.Build
		b.Build = func(s *mlx.Scope, w *weights.Tensors, dtype mlx.DType) engine.Model {
			return newChained(build(s, w, dtype).(*Model))
		}
		return b, err
	}
	return g
}

// chainedSuits says why the graph is of no use to weights of so many bytes.
func chainedSuits(stored int64, kernels bool) string {
	switch {
	case !kernels:
		return "its kernels do not run"
	case stored > chainedBytes:
		return fmt.Sprintf("it is for weights of up to %d MiB, these take %d", chainedBytes>>20, stored>>20)
	}
	return ""
}

// chained is the model with its blocks cut behind attention instead of behind the MLP.
type chained struct {
	*Model
	tails []nn.Tail // of each block, with the next one's projections
}

func newChained(m *Model) *chained {
	out := &chained{Model: m}
	for i, b := range m.Layers {
		mlp := b.MLP.(MLP)
		t := nn.Tail{O: b.SelfAttn.OProj, Norm: b.PostAttentionLayerNorm, Gate: mlp.GateProj, Up: mlp.UpProj, Down: mlp.DownProj}
		if i+1 < len(m.Layers) {
			t.NextNorm, t.Next = m.Layers[i+1].InputLayerNorm, m.Layers[i+1].SelfAttn.projections()
		}
		out.tails = append(out.tails, t)
	}
	return out
}

// projections are those side by side in front of attention.
func (a Attention) projections() []nn.Linear { return []nn.Linear{a.QProj, a.KProj, a.VProj} }

// Forward maps ids [1, T] to normed hidden states [1, T, H].
func (m *chained) Forward(s *mlx.Scope, ids *mlx.Array, pass *kv.Pass) *mlx.Array {
	h := m.EmbedTokens.Forward(s, ids)
	qkv := nn.Project(s, m.Layers[0].InputLayerNorm, h, m.Layers[0].SelfAttn.projections()...)
	for i, t := range m.tails {
		h, qkv = t.Forward(s, pass.Attend(s, i, qkv, m.Layers[i].SelfAttn.Attention), h)
	}
	return m.Norm.Forward(s, h)
}
