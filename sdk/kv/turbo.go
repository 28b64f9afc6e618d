package kv

import (
	"math"

	"github.com/clademl/clade/sdk/mlx"
)

// The turbo code as a graph: the kernels' arithmetic, operation by operation (native/kernels/src/cache.cpp, docs/kv.md).

// signs are 1 and -1, a bit of splitmix64's finalizer of each column's number.
func signs(s *mlx.Scope, dim int) *mlx.Array {
	out := make([]float32, dim)
	for i := range out {
		z := (uint64(i) + 1) * 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		out[i] = 1 - 2*float32((z^z>>31)>>63)
	}
	return mlx.FromSlice(s, out)
}

// hadamard is the unnormalised transform of the last axis of x, whose length is a power of two.
func hadamard(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	dims := x.Shape()
	n := dims[len(dims)-1]
	for h := 1; h < n; h *= 2 {
		pairs := s.Reshape(x, -1, n/(2*h), 2, h)
		a, b := s.SliceAxis(pairs, 2, 0, 1), s.SliceAxis(pairs, 2, 1, 2)
		x = s.Concat(2, s.Add(a, b), s.Sub(a, b))
	}
	return s.Reshape(x, dims...)
}

// root is the square root of the sum of squares of the last axis, added by halves: [.., 1].
func root(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	x = s.Mul(x, x)
	for n := x.Dim(-1); n > 1; n /= 2 {
		x = s.Add(s.SliceAxis(x, -1, 0, n/2), s.SliceAxis(x, -1, n/2, n))
	}
	return s.Sqrt(x)
}

func (c Code) encodeTurbo(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	dims := x.Shape() // [1, H, T, D]
	block := turboBlock(dims[3])
	zero := s.Scalar(0, mlx.Float32)
	x = s.Reshape(s.Mul(x, signs(s, dims[3])), dims[1], dims[2], -1, block)
	norm := root(s, x)
	some := s.Greater(norm, zero)
	unit := s.Where(some, s.Div(hadamard(s, x), norm), zero)

	// The number of thresholds below each value, by halving.
	table := turboTables[c.Bits]
	thresholds := mlx.FromSlice(s, append(append([]float32(nil), table.thresholds...), float32(math.Inf(1))))
	codes := s.Zeros(unit.Shape(), mlx.Uint32)
	for step := 1 << (c.Bits - 1); step > 0; step /= 2 {
		at := s.Take(thresholds, s.Add(codes, s.Scalar(float64(step-1), mlx.Uint32)), 0)
		codes = s.Add(codes, s.Mul(s.AsType(s.Greater(unit, at), mlx.Uint32), s.Scalar(float64(step), mlx.Uint32)))
	}
	picked := s.Take(mlx.FromSlice(s, table.levels), codes, 0)
	scale := s.Where(some, s.Div(norm, root(s, picked)), zero)
	heads := s.Reshape(s.View(scale, mlx.Uint32), 1, dims[1], dims[2], -1)
	return s.Concat(-1, heads, c.pack(s, codes, dims))
}

func (c Code) decodeTurbo(s *mlx.Scope, rows *mlx.Array, dim int) *mlx.Array {
	dims, block := rows.Shape(), turboBlock(dim)
	heads := s.View(s.Contiguous(s.SliceAxis(rows, -1, 0, dim/block), false), mlx.Float32)
	levels := s.Take(mlx.FromSlice(s, turboTables[c.Bits].levels), c.unpack(s, rows, dim), 0)
	x := s.Mul(s.Reshape(levels, dims[1], dims[2], -1, block), s.Reshape(heads, dims[1], dims[2], -1, 1))
	x = s.Mul(hadamard(s, x), s.Scalar(float64(float32(1)/float32(math.Sqrt(float64(block)))), mlx.Float32))
	return s.Mul(s.Reshape(x, 1, dims[1], dims[2], dim), signs(s, dim))
}
