package mlx

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInt8ProductsKeepTheirBound: of every element, on random inputs, with outliers, cancelling, tiny and zero, the error against
// float64 is at most the sum of |w| times 1/254 of the largest |x| among the 32 columns that share a scale, and what float32 adds to
// sums of that size.
func TestInt8ProductsKeepTheirBound(t *testing.T) {
	k := testKernels(t)
	const n, cols, rows, block = 40, 512, 3, 32
	for name, spoil := range map[string]func(i int, v float32) float32{
		"random":   func(_ int, v float32) float32 { return v },
		"outliers": func(i int, v float32) float32 { return v * float32(1+999*((i%97)/96)) },
		"cancelling": func(i int, v float32) float32 {
			return float32(math.Abs(float64(v))) * float32(1-2*(i%2))
		},
		"tiny":            func(_ int, v float32) float32 { return v * 1e-38 },
		"zero but one":    func(i int, v float32) float32 { return v * float32((i%200)/199) },
		"halves of steps": func(i int, _ float32) float32 { return float32(i%255-127) + 0.5*float32(i%2) },
	} {
		x := normals(30, rows*cols, 1)
		for i := range x {
			x[i] = spoil(i, x[i])
		}
		for _, q := range []Quant{{Bits: 4, GroupSize: 32}, {Bits: 4, GroupSize: 128}, {Bits: 8, GroupSize: 64}, {Bits: 6, GroupSize: 32}} {
			do(t, func(s *Scope) {
				p, wide := packAffine(t, s, k, FromSlice(s, normals(31, n*cols, 0.05), n, cols), q.Bits, q.GroupSize)
				defer p.Close()
				require.NoError(t, p.SetInt8(true))
				w := floats(t, s, wide)
				got := floats(t, s, s.PackedLinear(FromSlice(s, x, rows, cols), PackedLinear{Weights: []*Packed{p}}))
				off := false
				for r := range rows {
					for o := range n {
						var exact, bound, size float64
						for b := 0; b < cols; b += block {
							var largest, weights float64
							for c := b; c < b+block; c++ {
								xv, wv := float64(x[r*cols+c]), float64(w[o*cols+c])
								exact += xv * wv
								largest, weights = max(largest, math.Abs(xv)), weights+math.Abs(wv)
							}
							bound += weights * (largest/254 + 0x1p-126)
							size += largest * block // codes and biases are at most about 1 here
						}
						apart := math.Abs(float64(got[r*n+o]) - exact)
						require.LessOrEqual(t, apart, bound+size*0x1p-22, "%s, %v: row %d, column %d", name, q, r, o)
						off = off || apart > 1e-5*math.Abs(exact)
					}
				}
				require.True(t, off || name == "zero but one", "%s, %v: nothing was rounded to 8 bits", name, q)
			})
		}
	}
}

// TestInt8RowsDoNotDependOnBatchThreadsOrLevel is what holds of exact products too.
func TestInt8RowsDoNotDependOnBatchThreadsOrLevel(t *testing.T) {
	k := testKernels(t)
	const n, cols, most = 70, 128, 33
	x := normals(32, most*cols, 1)
	for _, dtype := range []DType{Float32, BFloat16} {
		for _, bits := range []int{4, 8} {
			t.Run(fmt.Sprintf("%v %d-bit", dtype, bits), func(t *testing.T) {
				do(t, func(s *Scope) {
					p, _ := packAffine(t, s, k, FromSlice(s, normals(33, n*cols, 0.1), n, cols), bits, 64)
					defer p.Close()
					require.NoError(t, p.SetInt8(true))
					norm := s.AsType(FromSlice(s, normals(34, cols, 1)), dtype)
					var want []float32
					for _, level := range k.Levels() {
						require.NoError(t, k.SetLevel(level))
						for _, threads := range []int{1, 2} {
							require.NoError(t, k.SetThreads(threads))
							for rows := 1; rows <= most; rows++ {
								in := s.AsType(FromSlice(s, x[:rows*cols], rows, cols), dtype)
								y := floats(t, s, s.PackedLinear(in, PackedLinear{Weights: []*Packed{p, p}, Gate: SiLU, Norm: norm, Eps: 1e-5}))
								if want == nil {
									want = y
								}
								require.Equal(t, want[:n], y[:n], "first of %d rows, %d threads, %s", rows, threads, level)
							}
						}
					}
				})
			})
		}
	}
}

func TestInt8IsForQuantizedWeights(t *testing.T) {
	k := testKernels(t)
	do(t, func(s *Scope) {
		p := packDense(t, s, k, s.Zeros([]int{16, 64}, Float32), BFloat16)
		defer p.Close()
		require.ErrorContains(t, p.SetInt8(true), "the weight is dense")
		require.NoError(t, p.SetInt8(false))
	})
}
