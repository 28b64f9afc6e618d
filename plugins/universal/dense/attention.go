package dense

import (
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// Attention is grouped-query attention with rotary positions.
type Attention struct {
	QProj, KProj, VProj, OProj nn.Linear
	// QNorm and KNorm are over all heads together, or each head as a LayerNorm; nil is none. Norms of each head that kernels know are
	// kv.Attention's.
	QNorm, KNorm nn.Norm
	kv.Attention

	layer            int // its number in the cache
	headDim, kvHeads int
}

func (b builder) attention(i int) Attention {
	c := b.c
	a := Attention{
		QProj: b.linear("self_attn.q_proj"), KProj: b.linear("self_attn.k_proj"), VProj: b.linear("self_attn.v_proj"),
		OProj: b.linear("self_attn.o_proj"), layer: i, headDim: c.HeadDim, kvHeads: c.KVHeads,
		Attention: kv.Attention{Heads: c.Heads, Scale: c.AttentionScale, Rope: b.rope(i), Softcap: float32(c.AttentionSoftcap)},
	}
	path := b.layer + "self_attn."
	weight := func(name string) *mlx.Array { return b.gain(b.w.Get(path + name + ".weight")) }
	switch c.QKNorm {
	case perHead:
		a.Attention.QNorm = nn.RMSNorm{Weight: weight("q_norm"), Eps: c.Eps}
		a.Attention.KNorm = nn.RMSNorm{Weight: weight("k_norm"), Eps: c.Eps}
	case fullWidth:
		a.QNorm, a.KNorm = b.norm(path, "q_norm"), b.norm(path, "k_norm")
	case headLayers, headTensors, noQKNorm:
	}
	return a
}

// rope is a layer's; nil where it does not rotate.
func (b builder) rope(i int) *nn.Rope {
	switch {
	case !b.c.Rotates[i]:
		return nil
	case b.local != nil && b.c.Windows[i] > 0:
		return b.local
	}
	return b.global
}

// Forward maps h [1, T, H] to the attention of norm(h), [1, T, Heads * HeadDim], in front of OProj.
func (a Attention) Forward(s *mlx.Scope, norm nn.Norm, h *mlx.Array, pass *kv.Pass) *mlx.Array {
	qkv := project(s, norm, h, a.QProj, a.KProj, a.VProj) // [1, T, (Hq + 2 Hkv) D]
	if a.QNorm != nil {
		q, k := a.Heads*a.headDim, a.kvHeads*a.headDim
		qkv = s.Concat(-1, a.QNorm.Forward(s, s.SliceAxis(qkv, -1, 0, q)), a.KNorm.Forward(s, s.SliceAxis(qkv, -1, q, q+k)),
			s.SliceAxis(qkv, -1, q+k, q+2*k))
	}
	return pass.Attend(s, a.layer, qkv, a.Attention)
}
