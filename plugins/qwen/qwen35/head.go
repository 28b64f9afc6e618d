package qwen35

import (
	"errors"

	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

// MTP is an open multi-token-prediction head: from the hidden state of a token and the token behind it, it says what comes behind
// that. It owns its tensors and shares the model's embedding and output.
type MTP struct {
	PreFCNormEmbedding, PreFCNormHidden nn.RMSNorm
	FC                                  nn.Linear // [H, 2H]
	Layer                               Block
	Norm                                nn.RMSNorm

	trunk
	parameters
}

// trunk is what a head shares with its model.
type trunk interface {
	Embed(s *mlx.Scope, ids *mlx.Array) *mlx.Array
	Unembed(s *mlx.Scope, hidden *mlx.Array) *mlx.Array
}

// newMTP builds a head over loaded tensors, which it takes over. It runs on the worker's thread.
func newMTP(s *mlx.Scope, c Config, l layout, w *weights.Tensors, dtype mlx.DType, target engine.Model) *MTP {
	h := &MTP{parameters: parameters{config: c, tensors: w, rope: nn.NewRope(s, c.Rope)}}
	var ok bool
	if h.trunk, ok = target.(trunk); !ok {
		_ = s.Fail(errors.New("the model lends no embedding to a head"))
	}
	b := builder{&h.parameters, s, l, dtype}
	h.PreFCNormEmbedding, h.PreFCNormHidden = b.norm(mtpPrefix+"pre_fc_norm_embedding"), b.norm(mtpPrefix+"pre_fc_norm_hidden")
	h.FC = b.linear(mtpPrefix + "fc")
	h.Layer = b.block(mtpLayer, 0, false)
	h.Norm = b.norm(mtpPrefix + "norm")
	return h
}

// Forward maps hidden states [1, T, H] of tokens, and the tokens behind each of them, ids [1, T], to normed hidden states [1, T, H]:
// Unembed makes logits of them, and a next step takes them for the model's.
func (h *MTP) Forward(s *mlx.Scope, ids, hidden *mlx.Array, pass *kv.Pass) *mlx.Array {
	x := s.Concat(-1, h.PreFCNormEmbedding.Forward(s, h.Embed(s, ids)), h.PreFCNormHidden.Forward(s, hidden)) // [1, T, 2H]
	return h.Norm.Forward(s, h.Layer.Forward(s, h.FC.Forward(s, x), pass))
}
