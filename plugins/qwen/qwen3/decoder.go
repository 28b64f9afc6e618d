package qwen3

import (
	"fmt"
	"slices"

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
	// decoderDevice is the processor that DecoderGraph was written and measured for.
	decoderDevice = "cpu-x86_64-avx512"
	// decoderBytes is the most that weights may take. It was measured to win with 76 to 415 MB; the more there are, the more a step waits for
	// memory and the less for what stands between its operations.
	decoderBytes = 512 << 20
)

// DecoderGraph is the dense Qwen 3 whose steps of a few rows go through all layers in one operation: nothing is built, queued and woken for
// each of five a layer. Prompts, rows with adapters and what Whole does not take run as in the generic graph. Its values are that graph's,
// bit for bit.
func DecoderGraph() engine.Graph { return written(Graph(), "qwen3-avx512-decoder") }

// MoEDecoderGraph is DecoderGraph of mixtures.
func MoEDecoderGraph() engine.Graph { return written(MoEGraph(), "qwen3-moe-avx512-decoder") }

// written is the entry beside a generic one.
func written(g engine.Graph, id string) engine.Graph {
	generic := g.Read
	g.ID, g.Serves = id, &cladev1.GraphKey{Device: new(decoderDevice)}
	g.Kernels = append(g.Kernels, kernels.AttendCaches.Name, kernels.Decoder.Name)
	g.Suits = func(set *weights.Set, target weights.Target) string {
		return decoderSuits(set.StoredBytes(), target.Kernels != nil && mlx.Decodes())
	}
	g.Read = func(a *artifact.Artifact, parsed artifact.Config) (engine.Blueprint, error) {
		b, err := generic(a, parsed)
		build := b.Build
		b.Build = func(s *mlx.Scope, w *weights.Tensors, dtype mlx.DType) engine.Model {
			return newDecoder(s, build(s, w, dtype).(*Model))
		}
		return b, err
	}
	return g
}

// decoderSuits says why the graph is of no use to weights of so many bytes.
func decoderSuits(stored int64, kernels bool) string {
	switch {
	case !kernels:
		return "its kernels do not run"
	case stored > decoderBytes:
		return fmt.Sprintf("it is for weights of up to %d MiB, these take %d", decoderBytes>>20, stored>>20)
	}
	return ""
}

// decoder is the model with its layers in the kernels' memory as one.
type decoder struct {
	*Model
	layers *mlx.Decoder // nil where a matrix is not packed
}

func newDecoder(s *mlx.Scope, m *Model) *decoder {
	out := &decoder{Model: m}
	layers := make([]mlx.DecoderLayer, len(m.Layers))
	for i, b := range m.Layers {
		var packed bool
		if layers[i], packed = b.decoderLayer(); !packed {
			return out
		}
	}
	if mlx.Decodes() {
		out.layers = s.NewDecoder(layers, mlx.SiLU, m.Norm.Eps)
	}
	return out
}

// decoderLayer is the block as the kernels take it; false where they do not hold all of its matrices.
func (b Block) decoderLayer() (mlx.DecoderLayer, bool) {
	a := b.SelfAttn
	l := mlx.DecoderLayer{
		Q: a.QProj.Packed, K: a.KProj.Packed, V: a.VProj.Packed, O: a.OProj.Packed,
		AttentionNorm: b.InputLayerNorm.Weight, MLPNorm: b.PostAttentionLayerNorm.Weight, QNorm: a.QNorm.Weight, KNorm: a.KNorm.Weight,
	}
	routed := true
	switch m := b.MLP.(type) {
	case MLP:
		l.Gate, l.Up, l.Down = m.GateProj.Packed, m.UpProj.Packed, m.DownProj.Packed
	case nn.Experts:
		l.Gate, l.Up, l.Down, l.Router = m.Gate.Packed, m.Up.Packed, m.Down.Packed, m.Router.Packed
		l.Experts, l.TopK, l.Normalize = m.Experts, m.TopK, m.Normalize
		routed = l.Router != nil
	}
	return l, routed && !slices.Contains([]*mlx.Packed{l.Q, l.K, l.V, l.O, l.Gate, l.Up, l.Down}, nil)
}

// Forward maps ids [1, T] to normed hidden states [1, T, H].
func (m *decoder) Forward(s *mlx.Scope, ids *mlx.Array, pass *kv.Pass) *mlx.Array {
	attention := m.Layers[0].SelfAttn.Attention
	if m.layers == nil || !pass.Whole(attention) {
		return m.Model.Forward(s, ids, pass)
	}
	h := m.EmbedTokens.Forward(s, ids)
	return m.Norm.Forward(s, pass.Decode(s, m.layers, h, attention))
}

// Close frees the layers and the parameters.
func (m *decoder) Close() {
	m.layers.Close()
	m.Model.Close()
}
