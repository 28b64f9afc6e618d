package qwen35

import (
	"math"

	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// Block is h + mixer(norm(h)), then h + mlp(norm(h)).
type Block struct {
	InputLayerNorm         nn.RMSNorm
	Mixer                  mixer
	PostAttentionLayerNorm nn.RMSNorm
	MLP                    feedForward
}

// mixer is what lets a token see those before it: an Attention or a DeltaNet.
type mixer interface {
	// Forward maps h [1, T, H] to h + mixer(norm(h)).
	Forward(s *mlx.Scope, norm nn.RMSNorm, h *mlx.Array, pass *kv.Pass) *mlx.Array
}

// block finds the parameters of layer, the i-th one of the cache.
func (b builder) block(layer string, i int, recurrent bool) Block {
	out := Block{
		InputLayerNorm: b.norm(layer + "input_layernorm"), PostAttentionLayerNorm: b.norm(layer + "post_attention_layernorm"),
		MLP: b.feedForward(layer + "mlp."),
	}
	if recurrent {
		out.Mixer = b.deltaNet(i, layer+"linear_attn.")
	} else {
		out.Mixer = b.attention(i, layer+"self_attn.")
	}
	return out
}

func (b builder) linear(path string) nn.Linear { return nn.NewLinear(b.s, b.tensors, path) }

// Forward maps [1, T, H] to [1, T, H].
func (b Block) Forward(s *mlx.Scope, h *mlx.Array, pass *kv.Pass) *mlx.Array {
	h = b.Mixer.Forward(s, b.InputLayerNorm, h, pass)
	return b.MLP.AddTo(s, b.PostAttentionLayerNorm, h)
}

// Attention is grouped-query attention whose result is gated. A part of each head rotates.
type Attention struct {
	QProj, QGate nn.Linear // the halves of q_proj
	KProj, VProj nn.Linear
	OProj        nn.Linear
	kv.Attention

	layer int // its number in the cache
}

func (b builder) attention(i int, path string) Attention {
	c := b.config
	return Attention{
		QProj: b.linear(path + "q_proj"), QGate: b.linear(path + "q_gate"), KProj: b.linear(path + "k_proj"), VProj: b.linear(path + "v_proj"),
		OProj: b.linear(path + "o_proj"), layer: i,
		Attention: kv.Attention{
			Heads: c.Heads, Scale: float32(math.Pow(float64(c.HeadDim), -0.5)), Rope: b.rope,
			QNorm: b.norm(path + "q_norm"), KNorm: b.norm(path + "k_norm"),
		},
	}
}

// Forward maps h [1, T, H] to h + attention(norm(h)).
func (a Attention) Forward(s *mlx.Scope, norm nn.RMSNorm, h *mlx.Array, pass *kv.Pass) *mlx.Array {
	qkv := nn.Project(s, norm, h, a.QProj, a.KProj, a.VProj) // [1, T, (Hq + 2 Hkv) D]
	gate := nn.Project(s, norm, h, a.QGate)                  // [1, T, Hq D]
	o := pass.Attend(s, a.layer, qkv, a.Attention)
	return a.OProj.AddTo(s, h, s.Mul(o, s.Sigmoid(gate)))
}

// DeltaNet is a gated delta network.
type DeltaNet struct {
	QKVProj, ZProj, BProj, AProj nn.Linear
	OutProj                      nn.Linear
	kv.GatedDelta

	layer int // its number in the cache
	// turned: the matrices have value heads by turns (gguf.go).
	turned bool
}

func (b builder) deltaNet(i int, path string) DeltaNet {
	d := b.config.Delta
	taps := b.s.Reshape(b.tensors.Get(path+"conv1d.weight"), d.Channels(), d.Taps) // either layout
	out := DeltaNet{
		QKVProj: b.linear(path + "in_proj_qkv"), ZProj: b.linear(path + "in_proj_z"),
		BProj: b.linear(path + "in_proj_b"), AProj: b.linear(path + "in_proj_a"), OutProj: b.linear(path + "out_proj"), layer: i,
		GatedDelta: kv.GatedDelta{
			DeltaShape: d, Conv: b.keep(b.s.Contiguous(b.s.Transpose(taps), false)),
			ALog: b.tensors.Get(path + "A_log"), DtBias: b.tensors.Get(path + "dt_bias"),
			Norm: nn.RMSNorm{Weight: b.tensors.Get(path + "norm.weight"), Eps: b.config.RMSNormEps},
		},
	}
	if b.layout.gguf {
		b.fromGGUF(&out)
	}
	return out
}

// Forward maps h [1, T, H] to h + the network's result of norm(h).
func (d DeltaNet) Forward(s *mlx.Scope, norm nn.RMSNorm, h *mlx.Array, pass *kv.Pass) *mlx.Array {
	x := nn.Project(s, norm, h, d.QKVProj, d.ZProj, d.BProj, d.AProj) // [1, T, Width]
	if d.turned {
		x = rearranged(s, x, d.DeltaShape)
	}
	o := pass.GatedDelta(s, d.layer, x, d.GatedDelta)
	if d.turned {
		o = byTurns(s, o, d.DeltaShape, d.ValueDim)
	}
	return d.OutProj.AddTo(s, h, o)
}
