//go:build device

package kernels

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights/quant"
)

// onGPU runs fn on the GPU of the runtime in CLADE_RUNTIME. These tests are no part of make test: native/device runs them.
func onGPU(t *testing.T, fn func(s *mlx.Scope, k *Sources)) {
	r, err := mlx.Open(os.Getenv("CLADE_RUNTIME"))
	require.NoError(t, err)
	k, err := LoadSources(r)
	require.NoError(t, err)
	w, err := r.NewWorker(mlx.GPU)
	require.NoError(t, err)
	require.NoError(t, w.Do(context.Background(), func(s *mlx.Scope) error { fn(s, k); return s.Err() }))
	require.NoError(t, w.Close())
	require.Zero(t, mlx.LiveHandles())
}

// matrix is a coded matrix on the GPU, and its array.
func (k *Sources) matrix(s *mlx.Scope, f quant.Trellis, out, in int, rings, scales []byte) (*TrellisMatrix, *mlx.Array) {
	lines := out
	if f.Axis == 0 {
		lines /= f.Block
	}
	words, by := trellisArrays(s, f, rings, scales)
	return k.Trellis(s.Reshape(words, lines, -1), s.Reshape(by, lines, -1), f, out, in), DecodeTrellis(s, words, by, f, out, in)
}

func values(t *testing.T, s *mlx.Scope, a *mlx.Array) []float32 {
	v, err := mlx.ToSlice[float32](s, s.AsType(a, mlx.Float32))
	require.NoError(t, err)
	return v
}

func TestTheSelfTestPassesOnTheGPU(t *testing.T) {
	r, err := mlx.Open(os.Getenv("CLADE_RUNTIME"))
	require.NoError(t, err)
	k, err := LoadSources(r)
	require.NoError(t, err)
	require.NoError(t, k.SelfTest(k.Kernel().Name))
	d := GPU().With(k).Describe()
	t.Logf("%s: %v, %s: %v %s", d[0].Name, d[0].SelfTest, d[1].Name, d[1].SelfTest, d[1].Reason)
}

// A row that the kernel looks up, and a product with a column of ones and zeros, is the decoded value: numpy's, bit for bit; the graph's too.
func TestTheGPUDecodesTrellisesAsNumpyDoes(t *testing.T) {
	for _, c := range goldens(t) {
		t.Run(fmt.Sprintf("%+v", c.format()), func(t *testing.T) {
			onGPU(t, func(s *mlx.Scope, k *Sources) {
				rings, scales := c.bytes(t)
				want := decoded(c.format(), c.Out, c.In, rings, scales)
				m, graph := k.matrix(s, c.format(), c.Out, c.In, rings, scales)
				require.Equal(t, want, values(t, s, graph), "the graph")
				require.Equal(t, want, values(t, s, m.Lookup(s, s.Arange(0, float64(c.Out), 1, mlx.Int32), mlx.Float32)), "rows")
				eye := s.Eye(c.In, c.In, 0, mlx.Float32)
				require.Equal(t, want, values(t, s, s.Transpose(m.Multiply(s, eye))), "columns")
			})
		})
	}
}

// Products are those of the decoded matrix, and a row's bits are the same whatever rows are beside it, in every dtype.
func TestTheGPUMultipliesTrellisesRowByRow(t *testing.T) {
	for _, f := range []quant.Trellis{
		{Bits: 1, Block: 32, State: 16, Axis: 1},
		{Bits: 2, Block: 16, State: 32, Axis: 1}, // a ring of one word: every state goes around it
		{Bits: 2, Block: 256, State: 16, Axis: 1},
		{Bits: 3, Block: 32, State: 12, Axis: 1},
		{Bits: 4, Block: 48, State: 16, Axis: 1},
		{Bits: 8, Block: 16, State: 8, Axis: 1},
		{Bits: 2, Block: 16, State: 32, Axis: 0},
		{Bits: 2, Block: 256, State: 16, Axis: 0},
		{Bits: 3, Block: 32, State: 12, Axis: 0},
		{Bits: 5, Block: 32, State: 24, Axis: 0},
		{Bits: 4, Block: 128, State: 16, Axis: 0},
	} {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			onGPU(t, func(s *mlx.Scope, k *Sources) {
				out, in := 2*f.Block+f.Block, 768
				if f.Axis == 1 {
					out = 203 // no whole group of rows
				}
				rings, scales := trellisSample(f, out, in)
				m, w := k.matrix(s, f, out, in, rings, scales)
				x := wave(s, 2, 33, in)
				for _, dtype := range []mlx.DType{mlx.Float32, mlx.BFloat16, mlx.Float16} {
					if dtype != mlx.Float32 && f.Bits != 2 {
						continue // each dtype is compiled alone
					}
					x := s.AsType(x, dtype)
					alone := make([][]float32, 33)
					for r := range alone {
						alone[r] = values(t, s, m.Multiply(s, s.SliceAxis(x, 0, r, r+1)))
					}
					for _, rows := range []int{1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33} {
						got := values(t, s, m.Multiply(s, s.SliceAxis(x, 0, 0, rows)))
						require.Equal(t, slices.Concat(alone[:rows]...), got, "%d rows of %v", rows, dtype)
					}
					want := values(t, s, s.Matmul(s.AsType(x, mlx.Float32), s.Transpose(w)))
					got, largest, apart := slices.Concat(alone...), 0.0, 0.0
					for i := range want {
						largest, apart = max(largest, math.Abs(float64(want[i]))), max(apart, math.Abs(float64(want[i]-got[i])))
					}
					bound := map[mlx.DType]float64{mlx.Float32: 1e-5, mlx.BFloat16: 1.0 / 256, mlx.Float16: 1.0 / 2048}[dtype]
					t.Logf("%v: %.1e of the largest from the graph's product", dtype, apart/largest)
					require.LessOrEqual(t, apart/largest, bound)
				}
			})
		})
	}
}

// Not a check: how fast a row of activations goes through a matrix of 2 bits, beside MLX's dense products, and 512 rows.
func TestSpeedOfTrellisProductsOnTheGPU(t *testing.T) {
	const chain = 24
	onGPU(t, func(s *mlx.Scope, k *Sources) {
		for _, shape := range [][2]int{{4096, 4096}, {4096, 14336}} {
			out, in := shape[0], shape[1]
			for _, rows := range []int{1, 8, 512} {
				base := s.MulScalar(wave(s, 1, rows, in), 0.01)
				measure := func(name string, bytes int, multiply func(x *mlx.Array) *mlx.Array) {
					once := func() time.Duration {
						c := s.Child()
						defer c.Close()
						var all []*mlx.Array
						for i := range chain {
							all = append(all, c.SumAll(multiply(c.AddScalar(base, float64(i))), false))
						}
						require.NoError(t, c.Eval(base))
						from := time.Now()
						require.NoError(t, c.Eval(all...))
						return time.Since(from) / chain
					}
					once()
					var took []time.Duration
					for range 7 {
						took = append(took, once())
					}
					slices.Sort(took)
					t.Logf("speed [%d, %d] x %d rows, %s: %v, %.0f GB/s of weights (%v to %v)", out, in, rows, name, took[3], float64(bytes)/took[3].Seconds()/1e9, took[0], took[6])
				}
				for _, dtype := range []mlx.DType{mlx.Float32, mlx.BFloat16} {
					dense := s.AsType(s.Reshape(s.Sin(s.Arange(0, float64(out*in), 1, mlx.Float32)), out, in), dtype)
					require.NoError(t, s.Eval(dense))
					wT := s.Transpose(dense)
					measure("dense "+dtype.String(), dense.NBytes(), func(x *mlx.Array) *mlx.Array { return s.Matmul(s.AsType(x, dtype), wT) })
					dense.Close()
				}
				for _, f := range []quant.Trellis{{Bits: 2, Block: 256, State: 16, Axis: 1}, {Bits: 2, Block: 256, State: 16, Axis: 0}, {Bits: 4, Block: 256, State: 16, Axis: 1}} {
					lines := out
					if f.Axis == 0 {
						lines /= f.Block
					}
					rings, scales := trellisSample(f, out, in)
					words, by := trellisArrays(s, f, rings, scales)
					m := k.Trellis(s.Reshape(words, lines, -1), s.Reshape(by, lines, -1), f, out, in)
					require.NoError(t, s.Eval(m.rings, m.scales))
					measure(fmt.Sprintf("trellis of %d bits along axis %d", f.Bits, f.Axis), m.NBytes(), func(x *mlx.Array) *mlx.Array { return m.Multiply(s, x) })
				}
			}
		}
	})
}
