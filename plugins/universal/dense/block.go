package dense

import (
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

// Block is one layer: attention and the MLP, each between its norms, added to their input.
type Block struct {
	Attn Attender
	MLP  MLP
	// In front of attention, on its output, in front of the MLP, on its output; nil is none.
	AttnNorm, AttnOutNorm, MLPNorm, MLPOutNorm nn.Norm

	parallel Parallel
	residual float64 // multiplier of what is added
	clip     bool
}

// Attender is attention in front of its output projection.
type Attender interface {
	// Forward maps h [1, T, H] to the attention of norm(h).
	Forward(s *mlx.Scope, norm nn.Norm, h *mlx.Array, pass *kv.Pass) *mlx.Array
	// Out is the output projection.
	Out() nn.Linear
}

// builder makes layers over loaded tensors.
type builder struct {
	s      *mlx.Scope
	c      *Config
	w      *weights.Tensors
	layer  string
	owned  *[]*mlx.Array // what the graph computes once, and closes
	global *nn.Rope
	local  *nn.Rope
	packs  bool // the kernels hold the matrices
}

func (b builder) block(i int) Block {
	b.layer = layerName(i)
	c := b.c
	var attn Attender
	if c.Latent {
		attn = b.latentAttention(i)
	} else {
		attn = b.attention(i)
	}
	return Block{
		Attn: attn, MLP: b.mlp(),
		AttnNorm: b.norm(b.layer, c.Norms.Attn), AttnOutNorm: b.norm(b.layer, c.Norms.AttnOut),
		MLPNorm: b.norm(b.layer, c.Norms.MLP), MLPOutNorm: b.norm(b.layer, c.Norms.MLPOut),
		parallel: c.Parallel, residual: c.ResidualScale, clip: c.ClipFP16,
	}
}

func (b builder) linear(name string) nn.Linear { return nn.NewLinear(b.s, b.w, b.layer+name) }

// norm is a norm by its name below at; nil without one.
func (b builder) norm(at, name string) nn.Norm {
	if name == "" {
		return nil
	}
	weight := b.w.Get(at + name + ".weight")
	if b.c.Norm == layerNorm {
		return nn.LayerNorm{Weight: weight, Bias: b.w.Get(at + name + ".bias"), Eps: b.c.Eps}
	}
	return nn.RMSNorm{Weight: b.gain(weight), Eps: b.c.Eps}
}

// gain is an RMS norm's weight as it multiplies: 1 + w, in the weight's dtype, is computed once.
func (b builder) gain(weight *mlx.Array) *mlx.Array {
	if b.c.Norm != rmsPlusOne {
		return weight
	}
	return b.once(b.s.AddScalar(weight, 1))
}

// once evaluates what the graph needs in every forward, and keeps it.
func (b builder) once(a *mlx.Array) *mlx.Array {
	_ = b.s.Eval(a) // a failure stays in the scope
	*b.owned = append(*b.owned, b.s.Keep(a))
	return a
}

// Forward maps [1, T, H] to [1, T, H].
func (b Block) Forward(s *mlx.Scope, h *mlx.Array, pass *kv.Pass) *mlx.Array {
	if b.parallel.If == always {
		return b.together(s, h, pass)
	}
	h = b.join(s, h, b.Attn.Out(), b.Attn.Forward(s, b.AttnNorm, h, pass), b.AttnOutNorm)
	return b.join(s, h, b.MLP.DownProj, b.MLP.Forward(s, b.MLPNorm, h), b.MLPOutNorm)
}

// together adds attention and MLP of the same normed input.
func (b Block) together(s *mlx.Scope, h *mlx.Array, pass *kv.Pass) *mlx.Array {
	x := b.AttnNorm.Forward(s, h)
	attended, gated := b.Attn.Forward(s, nil, x, pass), b.MLP.Forward(s, nil, x)
	if b.parallel.First {
		return s.Add(b.MLP.DownProj.AddTo(s, b.Attn.Out().Forward(s, attended), gated), h)
	}
	return b.MLP.DownProj.AddTo(s, b.Attn.Out().AddTo(s, h, attended), gated)
}

// join is h + residual * norm(out(x)).
func (b Block) join(s *mlx.Scope, h *mlx.Array, out nn.Linear, x *mlx.Array, norm nn.Norm) *mlx.Array {
	clips := b.clip && h.DType() == mlx.Float16
	if norm == nil && b.residual == 1 && !clips {
		return out.AddTo(s, h, x)
	}
	x = out.Forward(s, x)
	if norm != nil {
		x = norm.Forward(s, x)
	}
	if b.residual != 1 {
		x = s.MulScalar(x, b.residual)
	}
	if clips {
		return clipped(s, h, x)
	}
	return s.Add(h, x)
}

// clipped is a sum of float16 that does not overflow.
func clipped(s *mlx.Scope, a, b *mlx.Array) *mlx.Array {
	const most = 65504
	sum := s.Add(s.AsType(a, mlx.Float32), s.AsType(b, mlx.Float32))
	return s.AsType(s.Clip(sum, s.Scalar(-most, mlx.Float32), s.Scalar(most, mlx.Float32)), mlx.Float16)
}

// project is norm(x) through layers, side by side; a norm that no kernel has is computed first.
func project(s *mlx.Scope, norm nn.Norm, x *mlx.Array, layers ...nn.Linear) *mlx.Array {
	x, fused := before(s, norm, x)
	return nn.Project(s, fused, x, layers...)
}

// before applies a norm that the kernels do not fuse, and returns the one that they do.
func before(s *mlx.Scope, norm nn.Norm, x *mlx.Array) (*mlx.Array, nn.RMSNorm) {
	switch n := norm.(type) {
	case nil:
		return x, nn.RMSNorm{}
	case nn.RMSNorm:
		return x, n
	default:
		return n.Forward(s, x), nn.RMSNorm{}
	}
}
