package kv

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
)

// A network that attends over a donor's view gets what the layer itself would answer to a token without keys of its own.
func TestADonorShowsWhatItsLayerSees(t *testing.T) {
	for _, f := range []Format{formats[0], formats[3], formats[5]} {
		for _, window := range []int{0, 70} {
			for _, dtype := range []mlx.DType{mlx.Float32, mlx.BFloat16, mlx.Float16} {
				onWorker(t, func(s *mlx.Scope) {
					c := New(one(f, window, 0), true)
					defer c.Close()
					feed(t, s, c, dtype, 600, 100)
					d, err := c.Donor(s, 0)
					require.NoError(t, err)
					first := 0
					if window > 0 {
						first = 600 - window + 1
					}
					require.Equal(t, []int{first, 600, 600}, []int{d.Start, d.End, d.Offset})
					require.Equal(t, dtype, d.DType)
					require.Equal(t, []int{1, 1, 600 - first, wide}, d.Keys.Shape())
					mask := d.Mask(s, 3)
					require.Equal(t, dtype, mask.DType())
					got, err := mlx.ToSlice[float32](s, s.AsType(mask, mlx.Float32))
					require.NoError(t, err)
					for q := range 3 {
						for k := range 600 - first {
							v := got[q*(600-first)+k]
							seen := window == 0 || first+k > 600+q-window
							require.Equal(t, seen, v == 0, "query %d, position %d", 600+q, first+k)
							require.False(t, math.IsInf(float64(v), 0) || math.IsNaN(float64(v)), "what is masked is finite")
						}
					}
				})
			}
		}
	}
}

func TestALayerThatCannotBeADonorSaysWhy(t *testing.T) {
	onWorker(t, func(s *mlx.Scope) {
		c := New(one(Format{}, 1, 0), true)
		defer c.Close()
		_, err := c.Donor(s, 0)
		require.ErrorContains(t, err, "holds no keys")
		_, err = c.Donor(s, 1)
		require.ErrorContains(t, err, "layer 1 of 1")
		feed(t, s, c, mlx.Float32, 5, 5)
		_, err = c.Donor(s, 0)
		require.ErrorContains(t, err, "shows nothing")
	})
}
