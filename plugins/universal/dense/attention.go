package dense

import (
	"math"

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
	growth           float64
	original         int
	headDim, kvHeads int
}

func (b builder) attention(i int) Attention {
	c := b.c
	a := Attention{
		QProj: b.linear("self_attn.q_proj"), KProj: b.linear("self_attn.k_proj"), VProj: b.linear("self_attn.v_proj"),
		OProj: b.linear("self_attn.o_proj"), layer: i, headDim: c.HeadDim, kvHeads: c.KVHeads,
		Attention: kv.Attention{Heads: c.Heads, Scale: c.AttentionScale, Rope: b.rope(i), Softcap: float32(c.AttentionSoftcap)},
	}
	a.growth, a.original = c.QueryGrowth, c.Rope.OriginalPositions
	path := b.layer + "self_attn."
	weight := func(name string) *mlx.Array { return b.gain(b.w.Get(path + name + ".weight")) }
	switch c.QKNorm {
	case perHead:
		a.Attention.QNorm = nn.RMSNorm{Weight: weight("q_norm"), Eps: c.Eps}
		a.Attention.KNorm = nn.RMSNorm{Weight: weight("k_norm"), Eps: c.Eps}
	case fullWidth:
		a.QNorm, a.KNorm = b.norm(path, "q_norm"), b.norm(path, "k_norm")
	case headLayers:
		a.QNorm, a.KNorm = headNorm{b.w.Get(path + "q_norm.weight"), c.Eps}, headNorm{b.w.Get(path + "k_norm.weight"), c.Eps}
	case headTensors:
		a.QNorm = headNorm{b.stacked(headNames(path+"q_layernorm", c.Heads)), c.Eps}
		a.KNorm = headNorm{b.stacked(headNames(path+"k_layernorm", c.KVHeads)), c.Eps}
	case noQKNorm:
	}
	return a
}

// Out is the output projection.
func (a Attention) Out() nn.Linear { return a.OProj }

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
	if a.growth != 0 {
		qkv = a.grown(s, qkv, pass)
	}
	return pass.Attend(s, a.layer, qkv, a.Attention)
}

// grown multiplies the queries of tokens behind the original context: by 1 + beta ln(1 + the times that their position passed it).
func (a Attention) grown(s *mlx.Scope, qkv *mlx.Array, pass *kv.Pass) *mlx.Array {
	factors, grows := make([]float32, 0, pass.Tokens()), false
	for _, g := range pass.Segments() {
		for i := range g.Tokens {
			passed := (g.Cache.Offset() + i) / a.original
			grows = grows || passed > 0
			factors = append(factors, float32(1+a.growth*math.Log(1+float64(passed))))
		}
	}
	if !grows {
		return qkv
	}
	q := a.Heads * a.headDim
	by := s.AsType(mlx.FromSlice(s, factors, 1, len(factors), 1), qkv.DType())
	return s.Concat(-1, s.Mul(s.SliceAxis(qkv, -1, 0, q), by), s.SliceAxis(qkv, -1, q, q+2*a.kvHeads*a.headDim))
}

// headNorm normalises each head as a LayerNorm with a weight of its own [heads, HeadDim].
type headNorm struct {
	weight *mlx.Array
	eps    float32
}

// Forward maps [1, T, heads * HeadDim] to the same.
func (n headNorm) Forward(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	if x.NDim() != 3 {
		return x // an earlier error left an inert array
	}
	apart := s.Reshape(x, 1, -1, n.weight.Dim(0), n.weight.Dim(1))
	return s.Reshape(s.Mul(n.weight, s.LayerNorm(apart, nil, nil, n.eps)), 1, -1, x.Dim(-1))
}

// stacked is one array of vectors, computed once.
func (b builder) stacked(names []string) *mlx.Array {
	parts := make([]*mlx.Array, len(names))
	for i, name := range names {
		parts[i] = b.s.ExpandDims(b.w.Get(name), 0)
	}
	return b.once(b.s.Concat(0, parts...))
}
