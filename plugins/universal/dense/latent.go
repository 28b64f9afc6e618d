package dense

import (
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// Latents are the widths of attention whose queries, keys and values are expanded from latents.
type Latents struct {
	Query, KV             int // of the latents
	Plain, Rotated, Value int // channels of a head: of queries and keys those that do not rotate and those that do; of values
}

// latent reads the widths. Keys are expanded before they are kept, so that a head of the cache is as wide as the wider of keys and
// values, up to what the kernel takes.
func (r reader) latent(c *Config) {
	c.Latents = Latents{Query: r.Size("q_lora_rank"), KV: r.Size("kv_lora_rank"), Value: c.HiddenSize / c.Heads}
	if !r.gguf {
		c.Latents.Plain, c.Latents.Rotated = r.Size("qk_nope_head_dim"), r.Size("qk_rope_head_dim")
	} else { // there a head's width and what rotates of it stand in the places of all rows
		c.Latents.Rotated = r.Size("rotary_dim")
		if c.Latents.Plain = c.HeadDim - c.Latents.Rotated; c.Latents.Plain < 1 {
			r.Corrupt("rotary_dim", "%d of %d channels rotate, and some must not", c.Latents.Rotated, c.HeadDim)
		}
	}
	if c.Latents.Value == 0 || c.HiddenSize%c.Heads != 0 {
		r.Corrupt("num_attention_heads", "%d heads do not divide hidden_size %d", c.Heads, c.HiddenSize)
	}
	const kernelWidth = 16
	c.KVHeads = c.Heads
	c.HeadDim = (max(c.Latents.Plain+c.Latents.Rotated, c.Latents.Value) + kernelWidth - 1) / kernelWidth * kernelWidth
}

func (c Config) latents(l *list, path string) {
	w := c.Latents
	l.linear(path+"q_a_proj", w.Query, c.HiddenSize, c.QKVBias)
	l.add(path+"q_a_layernorm.weight", w.Query)
	l.linear(path+"q_b_proj", c.Heads*(w.Plain+w.Rotated), w.Query, "")
	l.linear(path+"kv_a_proj_with_mqa", w.KV+w.Rotated, c.HiddenSize, c.QKVBias)
	l.add(path+"kv_a_layernorm.weight", w.KV)
	l.linear(path+"kv_b_proj", c.Heads*(w.Plain+w.Value), w.KV, "")
	l.linear(path+"o_proj", c.HiddenSize, c.Heads*w.Value, c.OBias)
}

// LatentAttention expands queries, keys and values from latents. Rotating channels stand first in a head here, where the cache and
// the kernels want them; a product of queries and keys does not see the order.
type LatentAttention struct {
	QAProj, QBProj, KVAProj, KVBProj, OProj nn.Linear
	QANorm, KVANorm                         nn.RMSNorm
	kv.Attention

	layer, headDim int
	Latents
}

// latentEps is of the latents' norms, which mlx-lm makes without the config's.
const latentEps = 1e-5

func (b builder) latentAttention(i int) LatentAttention {
	path := "self_attn."
	norm := func(name string) nn.RMSNorm {
		return nn.RMSNorm{Weight: b.w.Get(b.layer + path + name + ".weight"), Eps: latentEps}
	}
	return LatentAttention{
		QAProj: b.linear(path + "q_a_proj"), QBProj: b.linear(path + "q_b_proj"), KVAProj: b.linear(path + "kv_a_proj_with_mqa"),
		KVBProj: b.linear(path + "kv_b_proj"), OProj: b.linear(path + "o_proj"), QANorm: norm("q_a_layernorm"), KVANorm: norm("kv_a_layernorm"),
		Attention: kv.Attention{Heads: b.c.Heads, Scale: b.c.AttentionScale, Rope: b.rope(i)},
		layer:     i, headDim: b.c.HeadDim, Latents: b.c.Latents,
	}
}

// Out is the output projection.
func (a LatentAttention) Out() nn.Linear { return a.OProj }

// Forward maps h [1, T, H] to the attention of norm(h), [1, T, Heads * Value].
func (a LatentAttention) Forward(s *mlx.Scope, norm nn.Norm, h *mlx.Array, pass *kv.Pass) *mlx.Array {
	x, fused := before(s, norm, h)
	x = fused.Forward(s, x)
	heads := func(x *mlx.Array) *mlx.Array { return s.Reshape(x, 1, pass.Tokens(), a.Heads, -1) }
	cut := func(x *mlx.Array, from, to int) *mlx.Array { return s.SliceAxis(x, -1, from, to) }

	q := heads(nn.Project(s, a.QANorm, a.QAProj.Forward(s, x), a.QBProj))  // [1, T, Hq, Plain + Rotated]
	latent := a.KVAProj.Forward(s, x)                                      // [1, T, KV + Rotated]
	kv := heads(nn.Project(s, a.KVANorm, cut(latent, 0, a.KV), a.KVBProj)) // [1, T, Hq, Plain + Value]
	rotated := s.ExpandDims(cut(latent, a.KV, a.KV+a.Rotated), 2)          // [1, T, 1, Rotated]: all heads share it

	q = a.wide(s, cut(q, a.Plain, a.Plain+a.Rotated), cut(q, 0, a.Plain))
	k := a.wide(s, s.BroadcastTo(rotated, 1, pass.Tokens(), a.Heads, a.Rotated), cut(kv, 0, a.Plain))
	v := a.wide(s, cut(kv, a.Plain, a.Plain+a.Value))
	o := heads(pass.Attend(s, a.layer, s.Concat(-1, q, k, v), a.Attention))
	return s.Reshape(cut(o, 0, a.Value), 1, pass.Tokens(), -1)
}

// wide is the parts of each head side by side, filled with zeros to the cache's width: [1, T, Heads * HeadDim].
func (a LatentAttention) wide(s *mlx.Scope, parts ...*mlx.Array) *mlx.Array {
	width := 0
	for _, p := range parts {
		if p.NDim() != 4 {
			return p // an earlier error left an inert array
		}
		width += p.Dim(-1)
	}
	if width < a.headDim {
		parts = append(parts, s.Zeros([]int{1, parts[0].Dim(1), a.Heads, a.headDim - width}, parts[0].DType()))
	}
	return s.Reshape(s.Concat(-1, parts...), 1, parts[0].Dim(1), -1)
}
