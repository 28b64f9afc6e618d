package kernels

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights/quant"
)

// DecodeTrellis is the trellis code as a graph of MLX's operations: rings [blocks, ring words] uint32 and scales [blocks] float32 of a
// matrix [out, in], as quant.Trellis has them, as [out, in] float32. It has the bits of quant.Trellis.
func DecodeTrellis(s *mlx.Scope, rings, scales *mlx.Array, t quant.Trellis, out, in int) *mlx.Array {
	words := t.RingBytes() / 4
	low, high, shift := make([]int32, t.Block), make([]int32, t.Block), make([]uint32, t.Block)
	for i := range t.Block {
		at := (t.Block - 1 - i) * t.Bits
		low[i], high[i], shift[i] = int32(at/32), int32((at/32+1)%words), uint32(at%32)
	}
	u := func(v uint32) *mlx.Array { return mlx.FromSlice(s, []uint32{v}) }
	by := mlx.FromSlice(s, shift)
	above := s.LeftShift(s.LeftShift(s.Take(rings, mlx.FromSlice(s, high), 1), u(1)), s.Sub(u(31), by)) // a shift by 32 is none
	state := s.BitwiseOr(s.RightShift(s.Take(rings, mlx.FromSlice(s, low), 1), by), above)
	state = s.BitwiseAnd(state, u(uint32(uint64(1)<<t.State-1))) // [blocks, Block]
	x := s.Add(s.Mul(state, u(34038481)), u(76625530))
	sum := s.BitwiseAnd(x, u(255))
	for i := uint32(8); i < 32; i += 8 {
		sum = s.Add(sum, s.BitwiseAnd(s.RightShift(x, u(i)), u(255)))
	}
	y := s.Sub(s.AsType(sum, mlx.Float32), s.Scalar(510, mlx.Float32))
	w := s.Mul(s.Div(y, s.Scalar(147.800537109375, mlx.Float32)), s.Reshape(scales, -1, 1))
	if t.Axis == 0 {
		w = s.Transpose(s.Reshape(w, out/t.Block, in, t.Block), 0, 2, 1)
	}
	return s.Reshape(w, out, in)
}

// trellisSample is a matrix of a format, with rings of every bit and scales that differ.
func trellisSample(t quant.Trellis, out, in int) (rings, scales []byte) {
	blocks := out * in / t.Block
	rings, scales = make([]byte, blocks*t.RingBytes()), make([]byte, 4*blocks)
	for i := range len(rings) / 4 {
		binary.LittleEndian.PutUint32(rings[4*i:], uint32(i+1)*2654435761)
	}
	for i := range blocks {
		binary.LittleEndian.PutUint32(scales[4*i:], math.Float32bits(0.1+float32(i%7)))
	}
	return rings, scales
}

// trellisArrays are rings and scales as the graph takes them, a block a row.
func trellisArrays(s *mlx.Scope, t quant.Trellis, rings, scales []byte) (words, by *mlx.Array) {
	blocks := len(scales) / 4
	return mlx.FromBytes(s, mlx.Uint32, []int{blocks, t.RingBytes() / 4}, rings), mlx.FromBytes(s, mlx.Float32, []int{blocks}, scales)
}

// testTrellis compares the rows and the products of both axes with the graph's.
func testTrellis(s *mlx.Scope, k *mlx.Kernels) error {
	const out, in = 64, 96
	for _, t := range []quant.Trellis{{Bits: 3, Block: 32, State: 16, Axis: 1}, {Bits: 2, Block: 64, State: 12, Axis: 0}} {
		rings, scales := trellisSample(t, out, in)
		p, err := k.NewTrellis(out, in, mlx.Trellis{Bits: t.Bits, Block: t.Block, State: t.State, Axis: t.Axis})
		if err != nil {
			return err
		}
		defer p.Close()
		if err := p.SetTrellis(0, out, rings, scales); err != nil {
			return err
		}
		words, by := trellisArrays(s, t, rings, scales)
		w := DecodeTrellis(s, words, by, t, out, in)
		for _, rows := range []int{1, 20} {
			x := wave(s, 3, rows, in)
			if err := agree(s, s.PackedLinear(x, mlx.PackedLinear{Weights: []*mlx.Packed{p}}), s.Matmul(x, s.Transpose(w))); err != nil {
				return fmt.Errorf("axis %d: %w", t.Axis, err)
			}
		}
	}
	return nil
}

// testTrellisSource compares the rows and the products of both axes with the graph's, on a GPU.
func testTrellisSource(s *mlx.Scope, k *Sources) error {
	const out, in = 64, 96
	for _, t := range []quant.Trellis{{Bits: 3, Block: 32, State: 16, Axis: 1}, {Bits: 2, Block: 64, State: 12, Axis: 0}} {
		rings, scales := trellisSample(t, out, in)
		words, by := trellisArrays(s, t, rings, scales)
		w := DecodeTrellis(s, words, by, t, out, in)
		lines := out
		if t.Axis == 0 {
			lines = out / t.Block
		}
		m := k.Trellis(s.Reshape(words, lines, -1), s.Reshape(by, lines, -1), t, out, in)
		x := wave(s, 3, 3, in)
		ids := mlx.FromSlice(s, []int32{0, 17, out - 1})
		if err := errors.Join(agree(s, m.Multiply(s, x), s.Matmul(x, s.Transpose(w))), agree(s, m.Lookup(s, ids, mlx.Float32), s.Take(w, ids, 0))); err != nil {
			return fmt.Errorf("axis %d: %w", t.Axis, err)
		}
	}
	return nil
}
