package qwen3

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
	MLP                    Mixer
}

// Mixer is a block's second half: an MLP, or a mixture of them.
type Mixer interface {
	// AddTo maps h [1, T, H] to h + mlp(norm(h)).
	AddTo(s *mlx.Scope, norm nn.RMSNorm, h *mlx.Array) *mlx.Array
}

func newBlock(s *mlx.Scope, c Config, w *weights.Tensors, i int, rope *nn.Rope) Block {
	layer := layerName(i)
	norm := func(name string) nn.RMSNorm {
		return nn.RMSNorm{Weight: w.Get(layer + name + ".weight"), Eps: c.RMSNormEps}
	}
	linear := func(name string) nn.Linear { return nn.NewLinear(s, w, layer+name) }
	return Block{
		InputLayerNorm: norm("input_layernorm"),
		SelfAttn: Attention{
			QProj: linear("self_attn.q_proj"), KProj: linear("self_attn.k_proj"), VProj: linear("self_attn.v_proj"),
			OProj: linear("self_attn.o_proj"), layer: i,
			Attention: kv.Attention{
				Heads: c.Heads, Scale: float32(math.Pow(float64(c.HeadDim), -0.5)), Rope: rope,
				QNorm: norm("self_attn.q_norm"), KNorm: norm("self_attn.k_norm"),
			},
		},
		PostAttentionLayerNorm: norm("post_attention_layernorm"),
		MLP:                    newMixer(c, i, linear),
	}
}

func newMixer(c Config, layer int, linear func(name string) nn.Linear) Mixer {
	if !c.sparse(layer) {
		return MLP{GateProj: linear("mlp.gate_proj"), UpProj: linear("mlp.up_proj"), DownProj: linear("mlp.down_proj")}
	}
	return nn.Experts{
		Router: linear("mlp.gate"), Gate: linear("mlp.switch_mlp.gate_proj"), Up: linear("mlp.switch_mlp.up_proj"),
		Down: linear("mlp.switch_mlp.down_proj"), Experts: c.MoE.Experts, TopK: c.MoE.TopK, Normalize: c.MoE.Normalize,
	}
}

// Forward maps [1, T, H] to [1, T, H].
func (b Block) Forward(s *mlx.Scope, h *mlx.Array, pass *kv.Pass) *mlx.Array {
	h = b.SelfAttn.Forward(s, b.InputLayerNorm, h, pass)
	return b.MLP.AddTo(s, b.PostAttentionLayerNorm, h)
}

// Attention is grouped-query attention with norms per head and rotary positions.
type Attention struct {
	QProj, KProj, VProj, OProj nn.Linear
	kv.Attention

	layer int // its number in the cache
}

// Forward maps h [1, T, H] to h + attention(norm(h)).
func (a Attention) Forward(s *mlx.Scope, norm nn.RMSNorm, h *mlx.Array, pass *kv.Pass) *mlx.Array {
	qkv := nn.Project(s, norm, h, a.QProj, a.KProj, a.VProj) // [1, T, (Hq + 2 Hkv) D]
	o := pass.Attend(s, a.layer, qkv, a.Attention)           // [1, T, Hq D]
	return a.OProj.AddTo(s, h, o)
}

// MLP is down(silu(gate(x)) * up(x)).
type MLP struct {
	GateProj, UpProj, DownProj nn.Linear
}

// AddTo maps h [1, T, H] to h + mlp(norm(h)).
func (m MLP) AddTo(s *mlx.Scope, norm nn.RMSNorm, h *mlx.Array) *mlx.Array {
	return m.DownProj.AddTo(s, h, nn.SwiGLU(s, norm, h, m.GateProj, m.UpProj))
}
