package dense

import (
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

// Latents are the widths of attention whose queries, keys and values are expanded from latents.
type Latents struct {
	Query, KV             int // of the latents
	Plain, Rotated, Value int // channels of a head: of queries and keys those that do not rotate and those that do; of values
}

// latent reads the widths.
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
	c.KVHeads, c.HeadDim = c.Heads, c.Latents.Plain+c.Latents.Rotated
}

// spec is what a layer keeps of a token: the latent and the rotated channels, once for all heads.
func (l Latents) spec() kv.Spec { return kv.LatentSpec(l.KV, l.Rotated) }

// latentValues is what attention over latents holds of a token: queries of heads, and, as wide as a row, queries brought to the latent,
// in order, widened for the kernel, and the result; stock operations keep the scores twice.
func (c Config) latentValues(context int, dtype mlx.DType, packed bool) int64 {
	wide := int64(c.Heads+1) * int64(c.Latents.spec().HeadDim)
	n := 2*int64(c.Heads)*int64(c.HeadDim) + 4*wide + wide*int64(mlx.Float32.Size()/dtype.Size())
	if !packed || !mlx.AttendsLatent() {
		n += wide + 2*int64(c.Heads)*int64(context)
	}
	return n
}

// absorbs reports whether the kernels multiply heads by their matrices.
func (l Latents) absorbs() bool { return mlx.AttendsLatent() && l.KV%16 == 0 && l.Value%16 == 0 }

func (c Config) latents(l *list, path string) {
	w := c.Latents
	l.linear(path+"q_a_proj", w.Query, c.HiddenSize, c.QKVBias)
	l.add(path+"q_a_layernorm.weight", w.Query)
	l.linear(path+"q_b_proj", c.Heads*(w.Plain+w.Rotated), w.Query, "")
	l.linear(path+"kv_a_proj_with_mqa", w.KV+w.Rotated, c.HiddenSize, c.QKVBias)
	l.add(path+"kv_a_layernorm.weight", w.KV)
	*l = append(*l, weights.Param{Name: path + "kv_b_proj.weight", Shape: []int{c.Heads * (w.Plain + w.Value), w.KV}, Plain: true})
	l.linear(path+"o_proj", c.HiddenSize, c.Heads*w.Value, c.OBias)
}

// LatentAttention is attention over latents. The matrix that expands them to keys and values is absorbed, its halves head by head.
type LatentAttention struct {
	QAProj, QBProj, KVAProj, OProj nn.Linear
	QANorm, KVANorm                nn.RMSNorm
	kv.LatentAttention

	layer int
	Latents
}

// latentEps is of the latents' norms, which mlx-lm makes without the config's.
const latentEps = 1e-5

func (b builder) latentAttention(i int) LatentAttention {
	path := "self_attn."
	norm := func(name string) nn.RMSNorm {
		return nn.RMSNorm{Weight: b.w.Get(b.layer + path + name + ".weight"), Eps: latentEps}
	}
	keys, values := b.absorbed(path + "kv_b_proj.weight")
	return LatentAttention{
		QAProj: b.linear(path + "q_a_proj"), QBProj: b.linear(path + "q_b_proj"), KVAProj: b.linear(path + "kv_a_proj_with_mqa"),
		OProj: b.linear(path + "o_proj"), QANorm: norm("q_a_layernorm"), KVANorm: norm("kv_a_layernorm"),
		LatentAttention: kv.LatentAttention{
			Attention: kv.Attention{Heads: b.c.Heads, Scale: b.c.AttentionScale, Rope: b.rope(i)}, Keys: keys, Values: values,
		},
		layer: i, Latents: b.c.Latents,
	}
}

// absorbed cuts [Heads * (Plain + Value), KV] into what brings queries to the latent, [Heads, Plain, KV], and what makes values of it,
// [Heads, KV, Value].
func (b builder) absorbed(name string) (keys, values nn.HeadLinear) {
	w := b.c.Latents
	whole := b.w.Take(b.layer + name)
	defer whole.Close()
	all := b.s.Reshape(whole, b.c.Heads, w.Plain+w.Value, w.KV)
	cut := func(a *mlx.Array) nn.HeadLinear {
		return nn.HeadLinear{Weight: b.once(b.s.Contiguous(a, false)), Kernel: b.packs}
	}
	return cut(b.s.SliceAxis(all, 1, 0, w.Plain)), cut(b.s.Swapaxes(b.s.SliceAxis(all, 1, w.Plain, w.Plain+w.Value), -1, -2))
}

// Out is the output projection.
func (a LatentAttention) Out() nn.Linear { return a.OProj }

// Forward maps h [1, T, H] to the attention of norm(h), [1, T, Heads * Value].
func (a LatentAttention) Forward(s *mlx.Scope, norm nn.Norm, h *mlx.Array, pass *kv.Pass) *mlx.Array {
	x, fused := before(s, norm, h)
	x = fused.Forward(s, x)
	q := nn.Project(s, a.QANorm, a.QAProj.Forward(s, x), a.QBProj) // [1, T, Hq (Plain + Rotated)]
	row := a.KVAProj.Forward(s, x)                                 // [1, T, KV + Rotated]
	latent := a.KVANorm.Forward(s, s.SliceAxis(row, -1, 0, a.KV))
	row = s.Concat(-1, latent, s.SliceAxis(row, -1, a.KV, a.KV+a.Rotated))
	return pass.AttendLatent(s, a.layer, q, row, a.LatentAttention)
}
