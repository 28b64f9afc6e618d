package dense

import (
	"cmp"

	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

// Model is an open decoder. It owns its tensors.
type Model struct {
	EmbedTokens nn.Embedding
	Layers      []Block
	Norm        nn.Norm
	LMHead      nn.Linear

	config  Config
	ropes   []*nn.Rope
	owned   []*mlx.Array
	tensors *weights.Tensors
}

// New builds the graph over loaded tensors, which it takes over, to compute in dtype. It runs on the worker's thread.
func New(s *mlx.Scope, c Config, w *weights.Tensors, dtype mlx.DType) *Model {
	m := &Model{EmbedTokens: nn.NewEmbedding(w, "model.embed_tokens", dtype), config: c, tensors: w}
	b := builder{s: s, c: &m.config, w: w, owned: &m.owned, packs: m.EmbedTokens.Packed != nil}
	if factors := cmp.Or(w.Get(ggufFreqs), w.Get(ggufLong)); factors != nil {
		b.global = nn.NewRopeFactors(s, c.Rope, factors)
	} else {
		b.global = nn.NewRope(s, c.Rope)
	}
	m.ropes = append(m.ropes, b.global)
	if c.LocalRope != nil {
		b.local = nn.NewRope(s, *c.LocalRope)
		m.ropes = append(m.ropes, b.local)
	}
	for i := range c.Layers {
		m.Layers = append(m.Layers, b.block(i))
	}
	m.Norm = b.norm("model.", "norm")
	m.LMHead = m.EmbedTokens.Head(s, w, "lm_head", c.Tied)
	return m
}

// Forward maps ids [1, T] to normed hidden states [1, T, H].
func (m *Model) Forward(s *mlx.Scope, ids *mlx.Array, pass *kv.Pass) *mlx.Array {
	h := m.EmbedTokens.Forward(s, ids)
	if m.config.EmbedScale != 1 {
		h = s.MulScalar(h, m.config.EmbedScale)
	}
	for _, block := range m.Layers {
		h = block.Forward(s, h, pass)
	}
	return m.Norm.Forward(s, h)
}

// Unembed maps hidden states [.., H] to logits [.., vocab].
func (m *Model) Unembed(s *mlx.Scope, hidden *mlx.Array) *mlx.Array {
	c := m.config
	if c.HeadDivisor != 1 {
		hidden = s.DivScalar(hidden, c.HeadDivisor)
	}
	logits := m.LMHead.Forward(s, hidden)
	if c.LogitDivisor != 1 {
		logits = s.DivScalar(logits, c.LogitDivisor)
	}
	if c.LogitScale != 1 {
		logits = s.MulScalar(logits, c.LogitScale)
	}
	if c.FinalSoftcap != 0 {
		logits = s.MulScalar(s.Tanh(s.DivScalar(logits, c.FinalSoftcap)), c.FinalSoftcap)
	}
	return logits
}

// Close frees the parameters.
func (m *Model) Close() {
	for _, r := range m.ropes {
		r.Close()
	}
	for _, a := range m.owned {
		a.Close()
	}
	m.tensors.Close()
}
