package qwen35

import (
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

// Model is an open Qwen 3.5. It owns its tensors.
type Model struct {
	EmbedTokens nn.Embedding
	Layers      []Block
	Norm        nn.RMSNorm
	LMHead      nn.Linear

	parameters
}

// parameters are what a model or a head is made of.
type parameters struct {
	config  Config
	rope    *nn.Rope
	tensors *weights.Tensors
	derived []*mlx.Array // made of tensors: shifted norms, transposed convolutions
}

// Close frees the parameters.
func (p *parameters) Close() {
	p.rope.Close()
	p.tensors.Close()
	for _, a := range p.derived {
		a.Close()
	}
}

// builder makes a model or a head of tensors.
type builder struct {
	*parameters
	s      *mlx.Scope
	layout layout
	dtype  mlx.DType
}

// newModel builds the graph over loaded tensors, which it takes over, to compute in dtype. It runs on the worker's thread.
func newModel(s *mlx.Scope, c Config, l layout, w *weights.Tensors, dtype mlx.DType) *Model {
	m := &Model{parameters: parameters{config: c, tensors: w, rope: nn.NewRope(s, c.Rope)}}
	b := builder{&m.parameters, s, l, dtype}
	m.EmbedTokens = nn.NewEmbedding(w, "language_model.model.embed_tokens", dtype)
	m.Norm = b.norm("language_model.model.norm")
	for i := range c.Layers {
		m.Layers = append(m.Layers, b.block(layerName(i), i, c.Recurrent[i]))
	}
	m.LMHead = m.EmbedTokens.Head(s, w, "language_model.lm_head", c.Tied)
	return m
}

// keep evaluates an array that is made of tensors and gives it to the model.
func (b builder) keep(a *mlx.Array) *mlx.Array {
	_ = b.s.Eval(a) // a failure stays in the scope
	b.derived = append(b.derived, b.s.Keep(a))
	return a
}

// norm finds path.weight, with its 1 where the file leaves it out.
func (b builder) norm(path string) nn.RMSNorm {
	name := path + ".weight"
	n := nn.RMSNorm{Weight: b.tensors.Get(name), Eps: b.config.RMSNormEps}
	if stored, ok := b.layout.norms[name]; ok && b.layout.shifted {
		n.Weight = b.keep(b.s.AsType(b.s.AddScalar(b.s.AsType(n.Weight, stored), 1), b.dtype))
	}
	return n
}

// Embed maps ids [1, T] to their embeddings [1, T, H].
func (m *Model) Embed(s *mlx.Scope, ids *mlx.Array) *mlx.Array { return m.EmbedTokens.Forward(s, ids) }

// Forward maps ids [1, T] to normed hidden states [1, T, H].
func (m *Model) Forward(s *mlx.Scope, ids *mlx.Array, pass *kv.Pass) *mlx.Array {
	h := m.Embed(s, ids)
	for _, block := range m.Layers {
		h = block.Forward(s, h, pass)
	}
	return m.Norm.Forward(s, h)
}

// Unembed maps hidden states [.., H] to logits [.., vocab].
func (m *Model) Unembed(s *mlx.Scope, hidden *mlx.Array) *mlx.Array {
	return m.LMHead.Forward(s, hidden)
}
