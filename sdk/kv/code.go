package kv

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
)

// Kind is a kind of Code.
type Kind int

// The kinds. The zero Code is Native.
const (
	Native Kind = iota // floats of the compute dtype
	Float              // floats of another dtype
	Affine             // integers with a scale and a bias for each group of columns
	Turbo              // rotated, then a scale and the number of a level for each column
)

// Code is how a row, one token's keys or values of one head, lies in memory. docs/kv.md defines the coded ones exactly.
type Code struct {
	Kind  Kind
	DType mlx.DType // of Float
	Bits  int       // of Affine and Turbo
	Group int       // of Affine: columns that share a scale
}

// What the coded kinds take.
var (
	affineBits = []int{2, 3, 4, 5, 6, 8}
	turboBits  = []int{2, 3, 4, 5, 8}
)

// widestHead is the most columns that a coded row has.
const widestHead = 1024

// Fits says why a head of dim columns cannot be stored so; nil when it can.
func (c Code) Fits(dim int) error {
	switch {
	case c.Kind < Native || c.Kind > Turbo:
		return fmt.Errorf("the kind %d is unknown", c.Kind)
	case c.coded() && dim > widestHead:
		return fmt.Errorf("heads of %d are wider than %d", dim, widestHead)
	case c.Kind == Affine && !slices.Contains(affineBits, c.Bits), c.Kind == Turbo && !slices.Contains(turboBits, c.Bits):
		return fmt.Errorf("%d bits are not stored", c.Bits)
	case c.Kind == Affine && (c.Group < 32 || c.Group%32 != 0 || dim%c.Group != 0):
		return fmt.Errorf("groups of %d do not divide heads of %d", c.Group, dim)
	case c.Kind == Turbo && dim%16 != 0:
		return fmt.Errorf("heads of %d are no multiple of 16", dim)
	}
	return nil
}

func (c Code) coded() bool { return c.Kind == Affine || c.Kind == Turbo }

// row is the dtype and the width of a row of dim columns.
func (c Code) row(dim int, compute mlx.DType) (mlx.DType, int) {
	switch c.Kind {
	case Float:
		return c.DType, dim
	case Affine, Turbo:
		return mlx.Uint32, c.heads(dim) + (dim*c.Bits+31)/32
	}
	return compute, dim
}

// bytes of a row of dim columns.
func (c Code) bytes(dim int, compute mlx.DType) int64 {
	dtype, width := c.row(dim, compute)
	return int64(width) * int64(dtype.Size())
}

// heads is the number of words before the codes of a row.
func (c Code) heads(dim int) int {
	if c.Kind == Turbo {
		return dim / turboBlock(dim)
	}
	return dim / c.Group
}

// kernel is the code as the kernels take it.
func (c Code) kernel() mlx.RowCode {
	switch c.Kind {
	case Affine:
		return mlx.RowCode{Kind: mlx.AffineRows, Bits: c.Bits, Group: c.Group}
	case Turbo:
		return mlx.RowCode{Kind: mlx.TurboRows, Bits: c.Bits}
	}
	return mlx.RowCode{}
}

// encode turns rows x [1, H, T, D] into stored ones. With a kernel it is one operation; both ways give the same bits.
func (c Code) encode(s *mlx.Scope, x *mlx.Array, kernels bool) *mlx.Array {
	switch {
	case x.NDim() != 4: // an earlier error left an inert array
		return x
	case c.Kind == Float:
		return s.AsType(x, c.DType)
	case c.coded() && kernels:
		return s.PackRows(x, c.kernel())
	case c.Kind == Affine:
		return c.encodeAffine(s, s.AsType(x, mlx.Float32))
	case c.Kind == Turbo:
		return c.encodeTurbo(s, s.AsType(x, mlx.Float32))
	}
	return x
}

// decode turns stored rows into [1, H, T, dim] of the compute dtype.
func (c Code) decode(s *mlx.Scope, rows *mlx.Array, dim int, compute mlx.DType) *mlx.Array {
	if rows.NDim() != 4 {
		return rows
	}
	switch c.Kind {
	case Affine:
		rows = c.decodeAffine(s, rows, dim)
	case Turbo:
		rows = c.decodeTurbo(s, rows, dim)
	}
	if rows.DType() == compute {
		return rows
	}
	return s.AsType(rows, compute)
}

// mostHalf is the largest finite float16.
const mostHalf = 65504

func (c Code) encodeAffine(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	dims := x.Shape() // [1, H, T, D]
	groups, most := dims[3]/c.Group, float64(int(1)<<c.Bits-1)
	constant := func(v float64) *mlx.Array { return s.Scalar(v, mlx.Float32) }
	x = s.Reshape(x, dims[1], dims[2], groups, c.Group)
	low, high := s.Min(x, -1, true), s.Max(x, -1, true)
	scale := s.AsType(s.Minimum(s.Div(s.Sub(high, low), constant(most)), constant(mostHalf)), mlx.Float16)
	bias := s.AsType(s.Clip(low, constant(-mostHalf), constant(mostHalf)), mlx.Float16)
	wide := s.AsType(scale, mlx.Float32)
	codes := s.Round(s.Div(s.Sub(x, s.AsType(bias, mlx.Float32)), wide), 0)
	codes = s.Where(s.Greater(wide, constant(0)), s.Clip(codes, constant(0), constant(most)), constant(0))
	heads := s.View(s.Concat(-1, scale, bias), mlx.Uint32) // [H, T, groups, 1]
	return s.Concat(-1, s.Reshape(heads, 1, dims[1], dims[2], groups), c.pack(s, s.AsType(codes, mlx.Uint32), dims))
}

func (c Code) decodeAffine(s *mlx.Scope, rows *mlx.Array, dim int) *mlx.Array {
	dims, groups := rows.Shape(), dim/c.Group
	heads := s.AsType(s.View(s.Contiguous(s.SliceAxis(rows, -1, 0, groups), false), mlx.Float16), mlx.Float32)
	heads = s.Reshape(heads, dims[1], dims[2], groups, 2)
	codes := s.Reshape(s.AsType(c.unpack(s, rows, dim), mlx.Float32), dims[1], dims[2], groups, c.Group)
	out := s.Add(s.Mul(codes, s.SliceAxis(heads, -1, 0, 1)), s.SliceAxis(heads, -1, 1, 2)) // exact: 11 bits times 8
	return s.Reshape(out, 1, dims[1], dims[2], dim)
}

// pack writes codes, as many as dims [1, H, T, D] has, as streams of bits [1, H, T, words].
func (c Code) pack(s *mlx.Scope, codes *mlx.Array, dims []int) *mlx.Array {
	h, t, d := dims[1], dims[2], dims[3]
	words := (d*c.Bits + 31) / 32
	if 32%c.Bits == 0 && d%(32/c.Bits) == 0 {
		codes = s.Reshape(codes, 1, h, t, words, 32/c.Bits)
		return s.Sum(s.LeftShift(codes, count(s, 32/c.Bits, c.Bits)), -1, false)
	}
	one := s.Scalar(1, mlx.Uint32)
	single := s.BitwiseAnd(s.RightShift(s.Reshape(codes, 1, h, t, d, 1), count(s, c.Bits, 1)), one) // [1, H, T, D, bits]
	single = s.Reshape(single, 1, h, t, d*c.Bits)
	if pad := words*32 - d*c.Bits; pad > 0 {
		single = s.Concat(-1, single, s.Zeros([]int{1, h, t, pad}, mlx.Uint32))
	}
	return s.Sum(s.LeftShift(s.Reshape(single, 1, h, t, words, 32), count(s, 32, 1)), -1, false)
}

// unpack reads the dim codes of each row: uint32 [1, H, T, dim].
func (c Code) unpack(s *mlx.Scope, rows *mlx.Array, dim int) *mlx.Array {
	dims := rows.Shape()
	words := s.SliceAxis(rows, -1, c.heads(dim), dims[3])
	words = s.Reshape(words, 1, dims[1], dims[2], -1, 1)
	if 32%c.Bits == 0 && dim%(32/c.Bits) == 0 {
		codes := s.BitwiseAnd(s.RightShift(words, count(s, 32/c.Bits, c.Bits)), s.Scalar(float64(int(1)<<c.Bits-1), mlx.Uint32))
		return s.Reshape(codes, 1, dims[1], dims[2], dim)
	}
	single := s.BitwiseAnd(s.RightShift(words, count(s, 32, 1)), s.Scalar(1, mlx.Uint32))
	single = s.SliceAxis(s.Reshape(single, 1, dims[1], dims[2], -1), -1, 0, dim*c.Bits)
	return s.Sum(s.LeftShift(s.Reshape(single, 1, dims[1], dims[2], dim, c.Bits), count(s, c.Bits, 1)), -1, false)
}

// count is 0, step, 2 step, ... of n, as shifts.
func count(s *mlx.Scope, n, step int) *mlx.Array {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i * step)
	}
	return mlx.FromSlice(s, out)
}

// turboBlock is the columns that are rotated together: the largest power of two that divides dim.
func turboBlock(dim int) int { return 1 << bits.TrailingZeros(uint(dim)) }
