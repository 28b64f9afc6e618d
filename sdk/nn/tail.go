package nn

import "github.com/clademl/clade/sdk/mlx"

// Tail is what stands between the attention of a block and that of the next: the output projection and the MLP, each added to the
// residual stream, then the next block's projections.
type Tail struct {
	O              Linear
	Norm           RMSNorm // of the MLP's input
	Gate, Up, Down Linear
	NextNorm       RMSNorm
	Next           []Linear // none behind the last block
}

// Forward maps the heads' results o [.., in] and h [.., hidden] to the new h and the next block's projections, nil without Next. One
// kernel when all matrices are packed and no adapter changes them; it has the bits of the layers alone.
func (t Tail) Forward(s *mlx.Scope, o, h *mlx.Array) (sum, projected *mlx.Array) {
	layers := append([]Linear{t.O, t.Gate, t.Up, t.Down}, t.Next...)
	w := packed(layers)
	if w == nil || !mlx.Chains() || len(changes(layers...)) > 0 || t.Norm.Weight == nil || len(t.Next) > 0 && t.NextNorm.Eps != t.Norm.Eps {
		h = t.O.AddTo(s, h, o)
		h = t.Down.AddTo(s, h, SwiGLU(s, t.Norm, h, t.Gate, t.Up))
		if len(t.Next) == 0 {
			return h, nil
		}
		return h, Project(s, t.NextNorm, h, t.Next...)
	}
	return s.PackedChain(o, h, mlx.PackedChain{
		O: w[0], Gate: w[1], Up: w[2], Down: w[3], Act: mlx.SiLU, MLPNorm: t.Norm.Weight, Next: w[4:], NextNorm: t.NextNorm.Weight, Eps: t.Norm.Eps,
	})
}
