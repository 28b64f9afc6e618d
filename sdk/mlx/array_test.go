package mlx

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func roundTrip[T Element](t *testing.T, values ...T) {
	t.Helper()
	t.Run(DTypeOf[T]().String(), func(t *testing.T) {
		do(t, func(s *Scope) {
			a := FromSlice(s, values, 2, len(values)/2)
			require.Equal(t, DTypeOf[T](), a.DType())
			require.Equal(t, []int{2, len(values) / 2}, a.Shape())
			require.Equal(t, len(values)*a.DType().Size(), a.NBytes())
			require.Equal(t, len(values), a.Size())
			got, err := ToSlice[T](s, a)
			require.NoError(t, err)
			require.Equal(t, values, got)
			raw, err := Bytes(s, a)
			require.NoError(t, err)
			same, err := ToSlice[T](s, FromBytes(s, a.DType(), a.Shape(), raw))
			require.NoError(t, err)
			require.Equal(t, values, same)
			// a transposed view has another memory order than its elements
			tr, err := ToSlice[T](s, s.Transpose(a))
			require.NoError(t, err)
			for i := range values {
				row, col := i/(len(values)/2), i%(len(values)/2)
				require.Equal(t, values[i], tr[col*2+row])
			}
		})
	})
}

func TestEveryDTypeTravelsBothWays(t *testing.T) {
	roundTrip(t, true, false, false, true)
	roundTrip(t, uint8(0), 1, 254, 255)
	roundTrip(t, uint16(0), 1, 2, math.MaxUint16)
	roundTrip(t, uint32(0), 1, 2, math.MaxUint32)
	roundTrip(t, uint64(0), 1, 2, math.MaxUint64)
	roundTrip(t, int8(-128), -1, 0, 127)
	roundTrip(t, int16(math.MinInt16), -1, 0, math.MaxInt16)
	roundTrip(t, int32(math.MinInt32), -1, 0, math.MaxInt32)
	roundTrip(t, int64(math.MinInt64), -1, 0, math.MaxInt64)
	roundTrip(t, ToF16(1.5), ToF16(-2), ToF16(65504), ToF16(0))
	roundTrip(t, float32(1.5), -2, math.MaxFloat32, math.SmallestNonzeroFloat32)
	roundTrip(t, 1.5, -2, math.MaxFloat64, math.SmallestNonzeroFloat64)
	roundTrip(t, ToBF16(1.5), ToBF16(-2), ToBF16(3e38), ToBF16(0))
	roundTrip(t, complex64(1+2i), -3i, 4, 0)
}

func TestDTypeNames(t *testing.T) {
	for d := Bool; d <= Complex64; d++ {
		back, ok := ParseDType(d.String())
		require.True(t, ok)
		require.Equal(t, d, back)
	}
	_, ok := ParseDType("float8")
	require.False(t, ok)
	require.False(t, DType(99).Valid())
}

func TestNonContiguousArraysAreReadInRowOrder(t *testing.T) {
	do(t, func(s *Scope) {
		x := s.Reshape(s.Arange(0, 24, 1, Int32), 2, 3, 4)
		cases := []struct {
			name string
			a    *Array
			want []int32
		}{
			{"slice of the inside", s.Slice(x, []int{0, 1, 1}, []int{2, 2, 3}), []int32{5, 6, 17, 18}},
			{"stride", s.SliceStrided(x, []int{0, 0, 0}, []int{2, 3, 4}, []int{1, 2, 3}), []int32{0, 3, 8, 11, 12, 15, 20, 23}},
			{"broadcast", s.BroadcastTo(FromSlice(s, []int32{7, 8}), 2, 2), []int32{7, 8, 7, 8}},
			{"axis", s.SliceAxis(x, -1, 3, 4), []int32{3, 7, 11, 15, 19, 23}},
			{"moved axis", s.SliceAxis(s.Moveaxis(x, 2, 0), 0, 0, 1), []int32{0, 4, 8, 12, 16, 20}},
		}
		for _, c := range cases {
			got, err := ToSlice[int32](s, c.a)
			require.NoError(t, err, c.name)
			require.Equal(t, c.want, got, c.name)
		}
	})
}

func TestArraysOfNothing(t *testing.T) {
	do(t, func(s *Scope) {
		a := FromSlice(s, []float32{}, 0, 3)
		got, err := ToSlice[float32](s, a)
		require.NoError(t, err)
		require.Empty(t, got)
		require.Equal(t, []int{0, 3}, a.Shape())
		e, b, err := s.Empty(Uint8, 4, 0)
		require.NoError(t, err)
		require.Empty(t, b)
		require.Equal(t, []int{4, 0}, e.Shape())
		v, err := Item[float32](s, FromBytes(s, Float32, nil, []byte{0, 0, 0x80, 0x3f}))
		require.NoError(t, err)
		require.Equal(t, float32(1), v)
	})
}

func TestEmptyIsFilledThroughItsOwnMemory(t *testing.T) {
	do(t, func(s *Scope) {
		a, mem, err := s.Empty(Int32, 2, 2)
		require.NoError(t, err)
		require.Len(t, mem, 16)
		require.Equal(t, make([]byte, 16), mem)
		n, err := bytes.NewReader([]byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0}).Read(mem)
		require.NoError(t, err)
		require.Equal(t, 16, n)
		got, err := ToSlice[int32](s, s.AddScalar(a, 1))
		require.NoError(t, err)
		require.Equal(t, []int32{2, 3, 4, 5}, got)
		other, _, err := s.Empty(Int32, 2, 2)
		require.NoError(t, err)
		zero, err := ToSlice[int32](s, other)
		require.NoError(t, err)
		require.Equal(t, []int32{0, 0, 0, 0}, zero, "memory is the array's own")
	})
}

func TestReadsDoNotCast(t *testing.T) {
	fails(t, "to_slice: [1]: a bfloat16 array cannot be read as float32", func(s *Scope) {
		_, err := ToSlice[float32](s, FromSlice(s, []BF16{0}))
		require.Error(t, err)
	})
	fails(t, "item: [2]: not one element", func(s *Scope) {
		_, err := Item[int32](s, FromSlice(s, []int32{1, 2}))
		require.Error(t, err)
	})
}

func TestShapesThatDoNotFitAreRefused(t *testing.T) {
	for want, shape := range map[string][]int{
		"float32[3] takes 12 bytes, 8 given": {3},
		"size -1 is out of range":            {-1},
		"size 4294967296 is out of range":    {1 << 32},
		"too large":                          {1 << 30, 1 << 30, 1 << 30},
		"17 dimensions":                      make([]int, 17),
	} {
		fails(t, "from_bytes: ", func(s *Scope) {
			require.True(t, FromBytes(s, Float32, shape, make([]byte, 8)).Inert())
			require.ErrorContains(t, s.Err(), want)
		})
	}
	fails(t, "empty: dtype(77) is no dtype", func(s *Scope) { _, _, _ = s.Empty(DType(77), 1) })
	fails(t, "reshape: 4294967297 does not fit", func(s *Scope) {
		s.Reshape(FromSlice(s, []int32{1}), 1<<32+1)
	})
}

func TestHalfConversionsAgreeWithMLX(t *testing.T) {
	do(t, func(s *Scope) {
		h := make([]F16, 1<<16)
		b := make([]BF16, 1<<16)
		for i := range h {
			h[i], b[i] = F16(i), BF16(i)
		}
		fromH, err := ToSlice[float32](s, s.AsType(FromSlice(s, h), Float32))
		require.NoError(t, err)
		fromB, err := ToSlice[float32](s, s.AsType(FromSlice(s, b), Float32))
		require.NoError(t, err)
		var probes []float32
		for i := range h {
			same(t, fromH[i], h[i].Float32(), "float16", i)
			same(t, fromB[i], b[i].Float32(), "bfloat16", i)
			if f := fromH[i]; f == f && !math.IsInf(float64(f), 0) {
				// the value, the ties beside it and their neighbours
				for _, g := range []float32{f, f * (1 + 1.0/4096), f * (1 + 1.0/2048), f * (1 + 3.0/4096)} {
					probes = append(probes, g, math.Nextafter32(g, 1e9), math.Nextafter32(g, -1e9))
				}
			}
		}
		probes = append(probes, 65519.996, 65520, 1e9, float32(math.Inf(-1)), 3.3895314e38, 3.4e38, 1e-45)
		toH, err := ToSlice[F16](s, s.AsType(FromSlice(s, probes), Float16))
		require.NoError(t, err)
		toB, err := ToSlice[BF16](s, s.AsType(FromSlice(s, probes), BFloat16))
		require.NoError(t, err)
		for i, f := range probes {
			if toH[i] != ToF16(f) || toB[i] != ToBF16(f) {
				require.Failf(t, "rounding", "%g: float16 %#x want %#x, bfloat16 %#x want %#x", f, ToF16(f), toH[i], ToBF16(f), toB[i])
			}
		}
		nan := float32(math.NaN())
		require.True(t, ToF16(nan).Float32() != ToF16(nan).Float32())
		require.True(t, ToBF16(nan).Float32() != ToBF16(nan).Float32())
	})
}

func same(t *testing.T, want, got float32, what string, i int) {
	if want != got && (want == want || got == got) {
		require.Fail(t, fmt.Sprintf("%s %#x: %g, want %g", what, i, got, want))
	}
}

// fails runs fn and wants the scope to end with an error that starts with prefix.
func fails(t *testing.T, prefix string, fn func(s *Scope)) {
	t.Helper()
	w := newTestWorker(t)
	err := w.Do(t.Context(), func(s *Scope) error { fn(s); return nil })
	require.Error(t, err)
	require.Contains(t, err.Error(), prefix)
}
