package llama

import (
	"math"

	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

// Block is h + attention(norm(h)), then h + mlp(norm(h)).
type Block struct {
	InputLayerNorm         nn.RMSNorm
	SelfAttn               Attention
	PostAttentionLayerNorm nn.RMSNorm
	MLP                    MLP
}

func newBlock(c Config, w *weights.Tensors, i int, rope *nn.Rope) Block {
	layer := layerName(i)
	norm := func(name string) nn.RMSNorm {
		return nn.RMSNorm{Weight: w.Get(layer + name + ".weight"), Eps: c.RMSNormEps}
	}
	linear := func(name string) nn.Linear { return newLinear(w, layer+name) }
	return Block{
		InputLayerNorm: norm("input_layernorm"),
		SelfAttn: Attention{
			QProj: linear("self_attn.q_proj"), KProj: linear("self_attn.k_proj"), VProj: linear("self_attn.v_proj"),
			OProj: linear("self_attn.o_proj"), Rope: rope, heads: c.Heads, kvHeads: c.KVHeads, headDim: c.HeadDim, layer: i,
		},
		PostAttentionLayerNorm: norm("post_attention_layernorm"),
		MLP: MLP{
			GateProj: linear("mlp.gate_proj"), UpProj: linear("mlp.up_proj"), DownProj: linear("mlp.down_proj"),
		},
	}
}

func newLinear(w *weights.Tensors, path string) nn.Linear {
	return nn.Linear{Weight: w.Get(path + ".weight"), Bias: w.Get(path + ".bias")}
}

// Forward maps [1, T, H] to [1, T, H].
func (b Block) Forward(s *mlx.Scope, h *mlx.Array, pass *kv.Pass) *mlx.Array {
	h = s.Add(h, b.SelfAttn.Forward(s, b.InputLayerNorm.Forward(s, h), pass))
	return s.Add(h, b.MLP.Forward(s, b.PostAttentionLayerNorm.Forward(s, h)))
}

// Attention is grouped-query attention with rotary positions.
type Attention struct {
	QProj, KProj, VProj, OProj nn.Linear
	Rope                       *nn.Rope

	heads, kvHeads, headDim int
	layer                   int // its number in the cache
}

// Forward maps [1, T, H] to [1, T, H].
func (a Attention) Forward(s *mlx.Scope, x *mlx.Array, pass *kv.Pass) *mlx.Array {
	q := a.split(s, a.QProj.Forward(s, x), a.heads)   // [1, Hq, T, D]
	k := a.split(s, a.KProj.Forward(s, x), a.kvHeads) // [1, Hkv, T, D]
	v := a.split(s, a.VProj.Forward(s, x), a.kvHeads) // [1, Hkv, T, D]
	q = a.Rope.Forward(s, q, pass.Offset())
	k = a.Rope.Forward(s, k, pass.Offset())
	o := pass.Attend(s, a.layer, q, k, v, float32(math.Pow(float64(a.headDim), -0.5)))
	o = s.Reshape(s.Transpose(o, 0, 2, 1, 3), 1, -1, a.heads*a.headDim) // [1, T, Hq*D]
	return a.OProj.Forward(s, o)
}

// split maps [1, T, n*D] to [1, n, T, D].
func (a Attention) split(s *mlx.Scope, x *mlx.Array, n int) *mlx.Array {
	return s.Transpose(s.Reshape(x, 1, -1, n, a.headDim), 0, 2, 1, 3)
}

// MLP is down(silu(gate(x)) * up(x)).
type MLP struct {
	GateProj, UpProj, DownProj nn.Linear
}

// Forward maps [1, T, H] to [1, T, H].
func (m MLP) Forward(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	return m.DownProj.Forward(s, s.Mul(s.SiLU(m.GateProj.Forward(s, x)), m.UpProj.Forward(s, x)))
}
