package kv

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
)

// projections fills n tokens of one sequence with values that no other sequence or position has.
func projections(sequence, first, n int) []float32 {
	out := make([]float32, 3*dim*n)
	for i := range out {
		out[i] = float32(math.Sin(float64(1000*sequence + 3*dim*first + i)))
	}
	return out
}

// A forward of several sequences gives each what it gets alone: on the kernel bit for bit, by stock operations to rounding.
func TestSequencesOfOnePassDoNotSeeEachOther(t *testing.T) {
	steps := [][]int{{7, 1, 300}, {1, 0, 1}, {1, 258, 1}, {4, 1, 1}} // tokens of each sequence in each pass; 0: not in it
	bothWays(t, func(t *testing.T, kernels bool) {
		for _, window := range []int{0, 8} {
			onWorker(t, func(s *mlx.Scope) {
				specs := []Spec{{Heads: 1, HeadDim: dim, Window: window}}
				together, alone := make([]*Cache, 3), make([]*Cache, 3)
				for i := range together {
					together[i], alone[i] = New(specs, kernels), New(specs, kernels)
					defer together[i].Close()
					defer alone[i].Close()
				}
				for _, step := range steps {
					var segments []Segment
					var qkv, want []float32
					for i, n := range step {
						if n == 0 {
							continue
						}
						own := projections(i, alone[i].Offset(), n)
						segments, qkv = append(segments, Segment{Cache: together[i], Tokens: n}), append(qkv, own...)
						want = append(want, attendAll(t, s, alone[i].Begin(n), own)...)
					}
					got := attendAll(t, s, Begin(segments...), qkv)
					require.Len(t, got, len(want))
					if kernels {
						require.Equal(t, want, got)
					} else {
						require.InDeltaSlice(t, want, got, 1e-5)
					}
				}
				for i, c := range together {
					require.Equal(t, alone[i].Offset(), c.Offset())
				}
			})
		}
	})
}

func attendAll(t *testing.T, s *mlx.Scope, pass *Pass, qkv []float32) []float32 {
	t.Helper()
	out := pass.Attend(s, 0, mlx.FromSlice(s, qkv, 1, pass.Tokens(), 3*dim), Attention{Heads: 1, Scale: 1})
	pass.End()
	got, err := mlx.ToSlice[float32](s, out)
	require.NoError(t, err)
	require.Len(t, pass.Arrays(), 2*len(pass.Segments()))
	return got
}
