package nn

import "github.com/clademl/clade/sdk/mlx"

// HeadLinear is a matrix for each head: of columns of a head's channels it makes others. Latent attention absorbs keys and values so.
type HeadLinear struct {
	Weight *mlx.Array // [heads, in, out], of a float dtype
	// Kernel: the kernel "head-linear" multiplies, where the library has it.
	Kernel bool
}

// In is the channels of a head that are read, Out those that are made.
func (l HeadLinear) In() int  { return l.Weight.Dim(1) }
func (l HeadLinear) Out() int { return l.Weight.Dim(2) }

// Forward maps x [1, T, heads * width], of each head the columns from `from` on, to [1, T, heads * out].
func (l HeadLinear) Forward(s *mlx.Scope, x *mlx.Array, from int) *mlx.Array {
	if l.Kernel && mlx.AttendsLatent() && l.Out()%16 == 0 {
		return s.HeadLinear(x, l.Weight, from)
	}
	if x.NDim() != 3 {
		return x // an earlier error left an inert array
	}
	tokens := x.Dim(1)
	x = s.Transpose(s.Reshape(x, 1, tokens, l.Weight.Dim(0), -1), 0, 2, 1, 3)
	y := s.Matmul(s.AsType(s.SliceAxis(x, -1, from, from+l.In()), l.Weight.DType()), s.ExpandDims(l.Weight, 0))
	return s.AsType(s.Reshape(s.Transpose(y, 0, 2, 1, 3), 1, tokens, -1), x.DType())
}
