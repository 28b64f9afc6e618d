package kv

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
)

// A cache filled from copies goes on exactly as the one that they were taken of, also where the copies were cut.
func TestAFilledCacheGoesOnAsTheOneItCameOf(t *testing.T) {
	bothWays(t, func(t *testing.T, kernels bool) {
		for _, held := range []int{1, 255, 256, 257, 600} {
			onWorker(t, func(s *mlx.Scope) {
				specs := []Spec{{Heads: 1, HeadDim: dim}}
				first, second := New(specs, kernels), New(specs, kernels)
				defer first.Close()
				defer second.Close()
				attendAll(t, s, first.Begin(held+5), projections(0, 0, held+5))

				var pieces []Piece
				for from := 0; from < held; from += Step {
					r, err := first.Copy(s, from, min(from+Step, held+5))
					require.NoError(t, err)
					defer r.Close()
					data, err := r.Encode(s)
					require.NoError(t, err)
					again, err := second.DecodeRun(s, mlx.Float32, data)
					require.NoError(t, err)
					defer again.Close()
					require.Equal(t, r.Bytes(), again.Bytes())
					pieces = append(pieces, Piece{Run: again, Tokens: min(Step, held-from)})
				}
				joined, err := second.Join(s, pieces)
				require.NoError(t, err)
				defer joined.Close()
				require.NoError(t, second.Fill(s, []Piece{{Run: joined, Tokens: held}}), "as one run")
				second.Close()
				require.NoError(t, second.Fill(s, pieces))
				require.Equal(t, held, second.Offset())

				want := New(specs, kernels)
				defer want.Close()
				attendAll(t, s, want.Begin(held), projections(0, 0, held))
				for range 3 { // beyond the room that Fill left
					next := projections(7, want.Offset(), 200)
					require.Equal(t, attendAll(t, s, want.Begin(200), next), attendAll(t, s, second.Begin(200), next))
				}
				// Nor did that change what was copied.
				third := New(specs, kernels)
				defer third.Close()
				require.NoError(t, third.Fill(s, pieces))
				again := New(specs, kernels)
				defer again.Close()
				attendAll(t, s, again.Begin(held), projections(0, 0, held))
				require.Equal(t, attendAll(t, s, again.Begin(1), projections(9, held, 1)), attendAll(t, s, third.Begin(1), projections(9, held, 1)))
			})
		}
	})
}

func TestRunsThatDoNotFitAreRefused(t *testing.T) {
	onWorker(t, func(s *mlx.Scope) {
		c := New([]Spec{{Heads: 1, HeadDim: dim}}, false)
		defer c.Close()
		_, err := c.Copy(s, 0, 1)
		require.ErrorContains(t, err, "of a cache that holds 0")
		attendAll(t, s, c.Begin(9), projections(0, 0, 9))
		r, err := c.Copy(s, 0, 9)
		require.NoError(t, err)
		defer r.Close()
		require.ErrorContains(t, c.Fill(s, []Piece{{Run: r, Tokens: 9}}), "not empty")
		other := New([]Spec{{Heads: 1, HeadDim: dim}, {Heads: 1, HeadDim: dim}}, false)
		require.ErrorContains(t, other.Fill(s, []Piece{{Run: r, Tokens: 9}}), "another cache's run")
		data, err := r.Encode(s)
		require.NoError(t, err)
		for n := range data {
			_, err := c.DecodeRun(s, mlx.Float32, data[:n])
			require.Error(t, err, n)
		}
		_, err = c.DecodeRun(s, mlx.Float32, append(data, 0))
		require.ErrorContains(t, err, "1 bytes too many")
		_, err = c.DecodeRun(s, mlx.Float16, data)
		require.Error(t, err)
	})
}
