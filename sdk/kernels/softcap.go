package kernels

import (
	"math"

	"github.com/clademl/clade/sdk/mlx"
)

// testAttendSoftcap compares two queries of a group over more than one tile with MLX's operations.
func testAttendSoftcap(s *mlx.Scope, _ *mlx.Kernels) error {
	const heads, dim, rows, scale, limit = 2, 16, 300, 0.25, 0.7
	qkv := wave(s, 10, 1, rows, (heads+2)*dim)
	cache := func() *mlx.Array { return s.Zeros([]int{1, 1, 512, dim}, mlx.Float32) }
	got, _ := s.AttendCaches(qkv, []mlx.CacheSequence{{
		Tokens: rows, Pairs: []mlx.CachePair{{Keys: cache(), Values: cache()}}, Tiles: [][2]int32{{0, 0}, {0, 256}},
	}}, 0, mlx.PackedAttention{Heads: heads, KVHeads: 1, HeadDim: dim, RopeScale: 1, RopeMScale: 1, Scale: scale, Softcap: limit})
	part := func(first, n int) *mlx.Array {
		return s.Transpose(s.Reshape(s.SliceAxis(qkv, -1, first*dim, (first+n)*dim), 1, rows, n, dim), 0, 2, 1, 3)
	}
	scores := s.MulScalar(s.Matmul(part(0, heads), s.Swapaxes(part(heads, 1), -1, -2)), scale)
	scores = s.MulScalar(s.Tanh(s.DivScalar(scores, limit)), limit)
	at := s.Arange(0, rows, 1, mlx.Int32)
	seen := s.GreaterEqual(s.ExpandDims(at, 1), s.ExpandDims(at, 0))
	weights := s.Softmax(s.Where(seen, scores, s.Scalar(math.Inf(-1), mlx.Float32)), -1, true)
	want := s.Matmul(weights, part(heads+1, 1))
	return agree(s, got, s.Reshape(s.Transpose(want, 0, 2, 1, 3), 1, rows, heads*dim))
}
