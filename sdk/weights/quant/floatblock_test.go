package quant

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

type floatBlockCase struct {
	Mode                  string
	Bits, Group, Rows     int
	Global                *string
	Codes, Scales, Values string
}

func floatBlockCases(t testing.TB) []floatBlockCase {
	t.Helper()
	var file struct{ Cases []floatBlockCase }
	golden(t, "floatblocks.json", &file)
	require.Len(t, file.Cases, 10)
	return file.Cases
}

func (c floatBlockCase) global(t *testing.T) float32 {
	if c.Global == nil {
		return NoGlobal
	}
	var v [1]float32
	F32Row(v[:], raw(t, *c.Global))
	return v[0]
}

// eachRow calls fn with a row's parts and its values.
func (c floatBlockCase) eachRow(t *testing.T, fn func(name string, f FloatBlock, codes, scales []byte, want []float32)) {
	t.Helper()
	f, ok := FloatBlockOf(c.Bits, c.Group)
	require.True(t, ok)
	require.Equal(t, c.Mode, f.Mode)
	codes, scales, values := raw(t, c.Codes), raw(t, c.Scales), raw(t, c.Values)
	n, groups := len(values)/4/c.Rows, len(scales)/c.Rows
	require.Equal(t, len(codes)/c.Rows, f.RowBytes(n))
	for r := range c.Rows {
		want := make([]float32, n)
		F32Row(want, values[r*4*n:(r+1)*4*n])
		s := scales[r*groups : (r+1)*groups]
		fn(fmt.Sprintf("%s global %g scale %d", c.Mode, c.global(t), s[0]), f, codes[r*f.RowBytes(n):(r+1)*f.RowBytes(n)], s, want)
	}
}

func TestFloatBlocksEqualMLXBitForBit(t *testing.T) {
	for _, c := range floatBlockCases(t) {
		c.eachRow(t, func(name string, f FloatBlock, codes, scales []byte, want []float32) {
			got := make([]float32, len(want))
			f.Row(got, codes, scales, c.global(t))
			requireBits(t, want, got, name)
		})
	}
}

// Codes hold what MLX computes, or say that they do not: only scales from 2^125 on, which overflow, are refused. An
// infinite scale is NaN throughout.
func TestPackedFloatBlocksHaveMLXsValues(t *testing.T) {
	for _, c := range floatBlockCases(t) {
		c.eachRow(t, func(name string, f FloatBlock, codes, scales []byte, want []float32) {
			if f.Affine.Bits == 0 {
				return
			}
			float := BFloat16
			if c.Global != nil {
				float = Float32
			}
			q, s, b := make([]byte, f.Affine.RowBytes(len(want))), make([]byte, 4*len(scales)), make([]byte, 4*len(scales))
			size := len(scales) * float.Size()
			err := f.Pack(q, s[:size], b[:size], float, codes, scales, c.global(t))
			if c.Mode == "mxfp4" && scales[0] >= 252 && scales[0] < 255 {
				require.ErrorIs(t, err, ErrNotHeld, name)
				return
			}
			require.NoError(t, err, name)
			for i, got := range kernelRow(len(want), f.Affine, float, q, s[:size], b[:size]) {
				if want[i]-want[i] != 0 {
					require.NotEqual(t, got, got, "%s value %d", name, i)
				} else if got == got {
					require.Equal(t, want[i]+0, got+0, "%s value %d", name, i)
				} else {
					require.False(t, finite(f.scale(scales[0])*(c.global(t)/globalUnit)), "%s value %d", name, i)
				}
			}
		})
	}
}

func TestE4M3FitsBFloat16AboveTheSmallestScales(t *testing.T) {
	f, _ := FloatBlockOf(8, 32)
	codes, row := make([]byte, 256), make([]float32, 256)
	for i := range codes {
		codes[i] = byte(i)
	}
	for s := range 256 {
		scales := make([]byte, 8)
		for i := range scales {
			scales[i] = byte(s)
		}
		f.Row(row, codes, scales, NoGlobal)
		held := true
		for _, v := range row {
			held = BFloat16.Put(make([]byte, 2), v) && held
		}
		require.Equal(t, s >= 3, held, "scale %d", s)
	}
}

func TestEachFloatModeHasOneShape(t *testing.T) {
	for _, shape := range [][2]int{{4, 64}, {8, 16}, {6, 32}, {0, 0}} {
		_, ok := FloatBlockOf(shape[0], shape[1])
		require.False(t, ok, "%v", shape)
	}
}

func FuzzFloatBlocks(f *testing.F) {
	f.Add(4, []byte{0, 127, 255, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, float32(1))
	f.Add(8, make([]byte, 66), float32(0))
	f.Add(1, []byte("000000000"), float32(4))           // one group of 16
	f.Add(1, []byte("\x01\x990000000"), float32(1e-42)) // scales that halve to nothing
	f.Fuzz(func(t *testing.T, pick int, data []byte, global float32) {
		m := floatBlocks[uint(pick)%uint(len(floatBlocks))]
		per := 1 + m.RowBytes(m.Group)
		groups := len(data) / per
		n := groups * m.Group
		scales, codes := data[:groups], data[groups:groups+m.RowBytes(n)]
		want := make([]float32, n)
		m.Row(want, codes, scales, global)
		if m.Affine.Bits == 0 {
			return
		}
		q, s, b := make([]byte, m.Affine.RowBytes(n)), make([]byte, 4*groups), make([]byte, 4*groups)
		if err := m.Pack(q, s, b, Float32, codes, scales, global); err != nil {
			require.ErrorIs(t, err, ErrNotHeld)
			return
		}
		for i, got := range kernelRow(n, m.Affine, Float32, q, s, b) {
			if got == got {
				require.Equal(t, want[i]+0, got+0, "value %d", i)
			}
		}
	})
}
