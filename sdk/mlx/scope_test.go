package mlx

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatmul(t *testing.T) {
	do(t, func(s *Scope) {
		a := FromSlice(s, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
		b := FromSlice(s, []float32{1, 0, 0, 1, 1, 1}, 3, 2)
		got, err := ToSlice[float32](s, s.Matmul(a, b))
		require.NoError(t, err)
		require.Equal(t, []float32{4, 5, 10, 11}, got)
	})
}

func TestShapeErrorNamesOpAndShapesAndWorkerGoesOn(t *testing.T) {
	w := newTestWorker(t)
	err := w.Do(context.Background(), func(s *Scope) error {
		a := FromSlice(s, make([]float32, 6), 2, 3)
		b := FromSlice(s, make([]float32, 20), 4, 5)
		c := s.Matmul(a, b)
		require.True(t, c.Inert())
		require.Nil(t, c.Shape())
		d := s.Add(c, a)
		require.True(t, d.Inert())
		return s.Err()
	})
	require.ErrorContains(t, err, "matmul: [2 3] x [4 5]: ")
	require.NotContains(t, err.Error(), ".cpp")
	require.Zero(t, w.Poisoned())
	require.NoError(t, w.Do(context.Background(), func(s *Scope) error {
		v, err := Item[float32](s, s.SumAll(FromSlice(s, []float32{1, 2}), false))
		require.Equal(t, float32(3), v)
		return err
	}))
}
