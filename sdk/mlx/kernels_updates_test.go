package mlx

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUpdatesAreAddedRowByRow compares low-rank updates with the graph of them, for gates, residuals, several weights and several
// updates of one row; a row that none touches has the bits that it has without any, and every row those that it has alone.
func TestUpdatesAreAddedRowByRow(t *testing.T) {
	k := testKernels(t)
	const n, cols, rows, rank = 40, 64, 21, 5
	for _, dtype := range []DType{Float32, BFloat16} {
		for _, gate := range []Gate{NoGate, SiLU, GELUTanh} {
			t.Run(fmt.Sprintf("%v gate %d", dtype, gate), func(t *testing.T) {
				do(t, func(s *Scope) {
					array := func(seed int64, scale float32, shape ...int) *Array {
						count := 1
						for _, d := range shape {
							count *= d
						}
						return s.AsType(FromSlice(s, normals(uint64(seed), count, float64(scale)), shape...), dtype)
					}
					packed := func(a *Array) *Packed { return packDense(t, s, k, a, dtype) }
					first, second := packed(array(1, 0.1, n, cols)), packed(array(2, 0.1, n, cols))
					a, b := packed(array(3, 0.1, rank, cols)), packed(array(4, 0.3, n, rank))
					a2, b2 := packed(array(5, 0.1, 16, cols)), packed(array(6, 0.3, n, 16))
					for _, p := range []*Packed{first, second, a, b, a2, b2} {
						defer p.Close()
					}
					x, norm := array(7, 1, rows, cols), array(8, 1, cols)
					width := 2 * n
					if gate != NoGate {
						width = n
					}
					residual := array(9, 1, rows, width)
					call := PackedLinear{Weights: []*Packed{first, second}, Gate: gate, Norm: norm, Eps: 1e-5, Residual: residual}
					plain := floats(t, s, s.PackedLinear(x, call))
					updates := []PackedUpdate{
						{A: a, B: b, Part: 0, First: 3, Rows: 1, Scale: 2},
						{A: a, B: b, Part: 1, First: 8, Rows: 10, Scale: 0.5},
						{A: a2, B: b2, Part: 1, First: 8, Rows: 10, Scale: -1},
						{A: a2, B: b2, Part: 0, First: 8, Rows: 10, Scale: 1},
					}
					call.Updates = updates
					got := floats(t, s, s.PackedLinear(x, call))
					changed := 0
					for r := range rows {
						row := got[r*width : (r+1)*width]
						if r != 3 && (r < 8 || r >= 18) {
							require.Equal(t, plain[r*width:(r+1)*width], row, "row %d has no update", r)
							continue
						}
						if !slices.Equal(plain[r*width:(r+1)*width], row) {
							changed++
						}
						alone := call
						alone.Residual, alone.Updates = s.SliceAxis(residual, 0, r, r+1), nil
						for _, u := range updates {
							if u.First <= r && r < u.First+u.Rows {
								u.First, u.Rows = 0, 1
								alone.Updates = append(alone.Updates, u)
							}
						}
						require.Equal(t, floats(t, s, s.PackedLinear(s.SliceAxis(x, 0, r, r+1), alone)), row, "row %d alone", r)
					}
					require.Equal(t, 11, changed)
					if dtype != Float32 {
						return
					}
					wide := func(p *Packed, shape ...int) *Array { // what the packed weight was made of
						return array(map[*Packed]int64{first: 1, second: 2, a: 3, b: 4, a2: 5, b2: 6}[p],
							map[*Packed]float32{first: 0.1, second: 0.1, a: 0.1, b: 0.3, a2: 0.1, b2: 0.3}[p], shape...)
					}
					at := func(x *Array) *Array { return s.SliceAxis(x, 0, 8, 18) }
					in := at(s.RMSNorm(x, norm, 1e-5))
					low := func(a, b *Packed, rank int, scale float64) *Array {
						return s.MulScalar(s.Matmul(s.Matmul(in, s.Transpose(wide(a, rank, cols))), s.Transpose(wide(b, n, rank))), scale)
					}
					one := s.Add(s.Matmul(in, s.Transpose(wide(first, n, cols))), low(a2, b2, 16, 1))
					two := s.Add(s.Add(s.Matmul(in, s.Transpose(wide(second, n, cols))), low(a, b, rank, 0.5)), low(a2, b2, 16, -1))
					want := s.Concat(1, one, two)
					switch gate {
					case SiLU:
						want = s.Mul(s.SiLU(one), two)
					case GELUTanh:
						return // the fused gate's own test compares it
					}
					want = s.Add(want, at(residual))
					wants := floats(t, s, want)
					for i, v := range got[8*width : 18*width] {
						require.InDelta(t, wants[i], v, 2e-5)
					}
				})
			})
		}
	}
}

func TestUpdatesThatDoNotFitAreRefused(t *testing.T) {
	k := testKernels(t)
	do(t, func(s *Scope) {
		dense := func(n, cols int) *Packed { return packDense(t, s, k, s.Zeros([]int{n, cols}, Float32), Float32) }
		w, a, b, wrong := dense(32, 64), dense(4, 64), dense(32, 4), dense(32, 5)
		for _, p := range []*Packed{w, a, b, wrong} {
			defer p.Close()
		}
		for name, u := range map[string]PackedUpdate{
			"does not fit":    {A: a, B: wrong, Rows: 1},
			"of weight 1":     {A: a, B: b, Part: 1, Rows: 1},
			"from 2 on, of 3": {A: a, B: b, First: 2, Rows: 2},
			"0 rows":          {A: a, B: b},
			"is closed":       {A: a, Rows: 1},
		} {
			err := newTestWorker(t).Do(t.Context(), func(s *Scope) error {
				s.PackedLinear(s.Zeros([]int{3, 64}, Float32), PackedLinear{Weights: []*Packed{w}, Updates: []PackedUpdate{u}})
				return s.Err()
			})
			require.ErrorContains(t, err, name)
		}
	})
}
