package qwen3

import (
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

// Model is an open Qwen 3. It owns its tensors.
type Model struct {
	EmbedTokens nn.Embedding
	Layers      []Block
	Norm        nn.RMSNorm
	LMHead      nn.Linear

	rope    *nn.Rope
	tensors *weights.Tensors
}

// New builds the graph over loaded tensors, which it takes over, to compute in dtype. It runs on the worker's thread.
func New(s *mlx.Scope, c Config, w *weights.Tensors, dtype mlx.DType) *Model {
	m := &Model{
		EmbedTokens: nn.NewEmbedding(w, "model.embed_tokens", dtype),
		Norm:        nn.RMSNorm{Weight: w.Get("model.norm.weight"), Eps: c.RMSNormEps},
		tensors:     w, rope: nn.NewRope(s, c.Rope),
	}
	for i := range c.Layers {
		m.Layers = append(m.Layers, newBlock(s, c, w, i, m.rope))
	}
	m.LMHead = m.EmbedTokens.Head(s, w, "lm_head", c.Tied)
	return m
}

// Forward maps ids [1, T] to normed hidden states [1, T, H].
func (m *Model) Forward(s *mlx.Scope, ids *mlx.Array, pass *kv.Pass) *mlx.Array {
	h := m.EmbedTokens.Forward(s, ids)
	for _, block := range m.Layers {
		h = block.Forward(s, h, pass)
	}
	return m.Norm.Forward(s, h)
}

// Unembed maps hidden states [.., H] to logits [.., vocab].
func (m *Model) Unembed(s *mlx.Scope, hidden *mlx.Array) *mlx.Array {
	return m.LMHead.Forward(s, hidden)
}

// Close frees the parameters.
func (m *Model) Close() {
	m.rope.Close()
	m.tensors.Close()
}
