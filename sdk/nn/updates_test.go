package nn

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
)

// boarded are parameters whose layers take adapters.
type boarded struct {
	parameters
	board *Board
}

func (b boarded) Board() *Board { return b.board }

// matrix is wave(.., by) as an adapter holds it.
func matrix(t *testing.T, s *mlx.Scope, k *mlx.Kernels, by float64, n, cols int) Matrix {
	t.Helper()
	values := wave(n*cols, by)
	if k == nil {
		return Matrix{Array: s.Keep(mlx.FromSlice(s, values, n, cols))}
	}
	p, err := k.NewDense(n, cols, mlx.Float32)
	require.NoError(t, err)
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	require.NoError(t, p.SetDense(0, n, data))
	return Matrix{Packed: p}
}

const rank = 3

// low is scale B(A x) in float64, A and B of wave.
func low(x []float64, a, b, scale float64) []float64 {
	wa, wb := wave(rank*width, a), wave(rows*rank, b)
	out := make([]float64, rows)
	for r := range rank {
		h := 0.0
		for j, v := range x {
			h += v * float64(wa[r*width+j])
		}
		for o := range out {
			out[o] += scale * h * float64(wb[o*rank+r])
		}
	}
	return out
}

// Rows of one forward with different adapters, one with two, and rows without any: each is its equation, in every layer, and the plain ones
// have the very bits that they have without adapters. In the kernels, as operations beside packed weights, and with arrays.
func TestEachRowHasItsOwnAdapters(t *testing.T) {
	do(t, func(s *mlx.Scope, k *mlx.Kernels) {
		const total = 6
		x, h := wave(total*width, 0.9), wave(total*rows, 0.2)
		in, residual := mlx.FromSlice(s, x, 1, total, width), mlx.FromSlice(s, h, 1, total, rows)
		for _, way := range []struct {
			name          string
			base, adapter *mlx.Kernels
		}{{"kernels", k, k}, {"beside the kernels", k, nil}, {"arrays", nil, nil}} {
			p := boarded{tensors(t, s, way.base), NewBoard()}
			norm := RMSNorm{Weight: p.Get("norm.weight"), Eps: 1e-5}
			a, b := NewLinear(s, p, "a"), NewLinear(s, p, "b")
			var one, two LowRank
			require.NoError(t, one.Add(p.board, "a", Update{matrix(t, s, way.adapter, 0.11, rank, width), matrix(t, s, way.adapter, 0.13, rows, rank), 0.5}))
			require.NoError(t, one.Add(p.board, "b", Update{matrix(t, s, way.adapter, 0.17, rank, width), matrix(t, s, way.adapter, 0.19, rows, rank), 0.5}))
			require.NoError(t, two.Add(p.board, "b", Update{matrix(t, s, way.adapter, 0.23, rank, width), matrix(t, s, way.adapter, 0.29, rows, rank), 2}))
			require.ErrorContains(t, one.Add(p.board, "c", Update{}), "no linear layer c")
			require.ErrorContains(t, one.Add(p.board, "a", Update{}), "twice")

			all := func() [][]float32 {
				return [][]float32{
					values(t, s, a.Forward(s, in)), values(t, s, b.AddTo(s, residual, in)),
					values(t, s, Project(s, norm, in, a, b)), values(t, s, SwiGLU(s, norm, in, a, b)),
				}
			}
			plain := all()
			// Rows 1 and 2 have the first, 4 both, the others none.
			p.board.Set(Span{1, 2, Stack{{&one, 1}}}, Span{4, 1, Stack{{&two, 0.25}, {&one, -1}}})
			got := all()
			p.board.Set()
			require.Equal(t, plain, all(), way.name)

			for r := range total {
				xr := x[r*width : (r+1)*width]
				exact, normed := make([]float64, width), make([]float64, width)
				var sum float64
				for _, v := range xr {
					sum += float64(v) * float64(v)
				}
				scale := wave(width, 0.3)
				for j, v := range xr {
					exact[j], normed[j] = float64(v), float64(v)*float64(scale[j])/math.Sqrt(sum/width+1e-5)
				}
				row := func(y []float32, n int) []float32 { return y[r*n : (r+1)*n] }
				if r == 0 || r == 3 || r == 5 {
					for i, n := range []int{rows, rows, 2 * rows, rows} {
						require.Equal(t, row(plain[i], n), row(got[i], n), "%s: layer %d, row %d has no adapter", way.name, i, r)
					}
					continue
				}
				adapted := func(x []float64, layer string) []float64 {
					narrow := make([]float32, width)
					for j := range x {
						narrow[j] = float32(x[j])
					}
					var y []float64
					add := func(d []float64) {
						for i := range y {
							y[i] += d[i]
						}
					}
					use := 1.0
					if r == 4 {
						use = -1
					}
					if layer == "a" {
						y = reference(narrow, 1.1, wave(rows, 0.7))
						add(low(x, 0.11, 0.13, 0.5*use))
						return y
					}
					y = reference(narrow, 2.1, nil)
					add(low(x, 0.17, 0.19, 0.5*use))
					if r == 4 {
						add(low(x, 0.23, 0.29, 0.5))
					}
					return y
				}
				ya, yb, na, nb := adapted(exact, "a"), adapted(exact, "b"), adapted(normed, "a"), adapted(normed, "b")
				gated := make([]float64, rows)
				for i := range rows {
					yb[i] += float64(h[r*rows+i])
					gated[i] = na[i] / (1 + math.Exp(-na[i])) * nb[i]
				}
				for i, want := range [][]float64{ya, yb, append(na, nb...), gated} {
					for j, v := range row(got[i], len(want)) {
						require.InDelta(t, want[j], v, 1e-4*math.Max(1, math.Abs(want[j])), "%s: layer %d, row %d, value %d", way.name, i, r, j)
					}
				}
			}
			one.Close()
			two.Close()
			p.close()
		}
	})
}
