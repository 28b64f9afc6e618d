package kernels

import (
	"math"

	"github.com/clademl/clade/sdk/mlx"
)

// AttendLatent is AttendCaches over rows that are keys and values at once: a plan has it for a graph with latents.
var AttendLatent = Kernel{
	Name: "attend-latent",
	Signature: "q and row [1, T, (heads + kv_heads) d] of all sequences, the rows of each before, keys and values at once, as attend-caches has them " +
		"-> [1, T, heads d]",
	Devices:  []string{"cpu"},
	Fallback: "MLX's scaled dot product attention, its values the keys; what a token gets depends on how its prompt is cut then",
}

// HeadLinear is Linear of each head with a matrix of its own.
var HeadLinear = Kernel{
	Name:      "head-linear",
	Signature: "x [1, T, heads width], w [heads, in, out] dense, columns of each head of x -> [1, T, heads out]",
	Devices:   []string{"cpu"},
	Fallback:  "MLX's matmul over heads in front of rows",
}

// testAttendLatent compares three queries over more than one tile with MLX's operations.
func testAttendLatent(s *mlx.Scope, _ *mlx.Kernels) error {
	const heads, dim, rows, scale = 3, 48, 300, 0.25
	qr := wave(s, 14, 1, rows, (heads+1)*dim)
	got, _ := s.AttendCaches(qr, []mlx.CacheSequence{{
		Tokens: rows, Pairs: []mlx.CachePair{{Keys: s.Zeros([]int{1, 1, 512, dim}, mlx.Float32)}}, Tiles: [][2]int32{{0, 0}, {0, 256}},
	}}, 0, mlx.PackedAttention{Heads: heads, KVHeads: 1, HeadDim: dim, RopeScale: 1, RopeMScale: 1, Scale: scale, Latent: true})
	part := func(first, n int) *mlx.Array {
		return s.Transpose(s.Reshape(s.SliceAxis(qr, -1, first*dim, (first+n)*dim), 1, rows, n, dim), 0, 2, 1, 3)
	}
	row := part(heads, 1)
	scores := s.MulScalar(s.Matmul(part(0, heads), s.Swapaxes(row, -1, -2)), scale)
	at := s.Arange(0, rows, 1, mlx.Int32)
	seen := s.GreaterEqual(s.ExpandDims(at, 1), s.ExpandDims(at, 0))
	weights := s.Softmax(s.Where(seen, scores, s.Scalar(math.Inf(-1), mlx.Float32)), -1, true)
	return agree(s, got, s.Reshape(s.Transpose(s.Matmul(weights, row), 0, 2, 1, 3), 1, rows, heads*dim))
}

// testHeadLinear compares rows of more than one block with MLX's matmul, and one row alone with itself among the others.
func testHeadLinear(s *mlx.Scope, _ *mlx.Kernels) error {
	const heads, width, from, in, out, rows = 3, 24, 5, 19, 80, 70
	x, w := wave(s, 15, 1, rows, heads*width), wave(s, 16, heads, in, out)
	got := s.HeadLinear(x, w, from)
	apart := s.Transpose(s.Reshape(x, 1, rows, heads, width), 0, 2, 1, 3)
	want := s.Matmul(s.SliceAxis(apart, -1, from, from+in), s.Reshape(w, 1, heads, in, out))
	if err := agree(s, got, s.Reshape(s.Transpose(want, 0, 2, 1, 3), 1, rows, heads*out)); err != nil {
		return err
	}
	return same(s, s.HeadLinear(s.SliceAxis(x, 1, 60, 61), w, from), s.SliceAxis(got, 1, 60, 61))
}
