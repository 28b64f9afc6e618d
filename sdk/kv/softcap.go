package kv

import (
	"math"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
)

// capped is attention with bent scores, in gemma2's order of operations: queries are scaled first, of a group of heads that shares
// keys at once. A nil mask hides nothing.
func (a Attention) capped(s *mlx.Scope, q, keys, values, seen *mlx.Array) *mlx.Array {
	q = s.MulScalar(q, float64(a.Scale))
	if q.NDim() != 4 {
		return q // an earlier error left an inert array
	}
	shape, kvHeads := slices.Clone(q.Shape()), keys.Dim(1)
	if kvHeads != a.Heads {
		q = s.Reshape(q, 1, kvHeads, a.Heads/kvHeads, shape[2], shape[3])
		keys, values = s.ExpandDims(keys, 2), s.ExpandDims(values, 2)
	}
	limit := float64(a.Softcap)
	scores := s.MulScalar(s.Tanh(s.DivScalar(s.Matmul(q, s.Swapaxes(keys, -1, -2)), limit)), limit)
	if seen != nil {
		scores = s.Where(seen, scores, s.Scalar(math.Inf(-1), scores.DType()))
	}
	return s.Reshape(s.Matmul(s.Softmax(scores, -1, true), values), shape...)
}
