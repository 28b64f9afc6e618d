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

func TestKeptArrayOutlivesItsScopeAndIsAdopted(t *testing.T) {
	w := newTestWorker(t)
	var kept *Array
	require.NoError(t, w.Do(t.Context(), func(s *Scope) error {
		FromSlice(s, []float32{9})
		kept = s.Keep(s.AddScalar(FromSlice(s, []float32{1, 2}), 1))
		return s.Eval(kept)
	}))
	require.EqualValues(t, 1, LiveHandles())
	require.NoError(t, w.Do(t.Context(), func(s *Scope) error {
		got, err := ToSlice[float32](s, kept)
		require.Equal(t, []float32{2, 3}, got)
		require.EqualValues(t, 1, LiveHandles())
		s.Adopt(kept)
		return err
	}))
	require.Zero(t, LiveHandles())
	require.Equal(t, "closed", (&Array{}).String())
	kept.Close() // again: nothing happens
}

func TestChildFreesItsOwnAndSharesTheError(t *testing.T) {
	w := newTestWorker(t)
	err := w.Do(t.Context(), func(s *Scope) error {
		c := s.Child()
		x := s.Adopt(c.AddScalar(FromSlice(c, []float32{1}), 1))
		before := LiveHandles()
		c.Close()
		require.Less(t, LiveHandles(), before)
		v, err := Item[float32](s, x)
		require.NoError(t, err)
		require.Equal(t, float32(2), v)
		d := s.Child()
		defer d.Close()
		d.Squeeze(FromSlice(d, []float32{1, 2}), 0)
		require.Error(t, s.Err())
		require.True(t, s.Add(x, x).Inert())
		return nil
	})
	require.ErrorContains(t, err, "squeeze_axis: [2]: ")
}

func TestSweepFreesAllButTheGiven(t *testing.T) {
	do(t, func(s *Scope) {
		x := FromSlice(s, []float32{1, 2})
		y := s.Square(x)
		z := s.SumAll(y, false)
		s.Sweep(z)
		require.EqualValues(t, 1, LiveHandles())
		require.NoError(t, s.Eval(z))
		v, err := Item[float32](s, z)
		require.NoError(t, err)
		require.Equal(t, float32(5), v)
	})
}

func TestClosedAndNilInputsAreNamed(t *testing.T) {
	fails(t, "add: input 1 is nil", func(s *Scope) { s.Add(FromSlice(s, []float32{1}), nil) })
	fails(t, "multiply: input 0 is closed", func(s *Scope) {
		x := FromSlice(s, []float32{1})
		x.Close()
		s.Mul(x, FromSlice(s, []float32{1}))
	})
	fails(t, "rms_norm: input 0 is closed", func(s *Scope) { // a closed weight is not "no weight"
		w := FromSlice(s, []float32{1})
		w.Close()
		s.RMSNorm(FromSlice(s, []float32{1}), w, 1e-5)
	})
	fails(t, "concatenate_axis: input 1 is nil", func(s *Scope) { s.Concat(0, FromSlice(s, []float32{1}), nil) })
	fails(t, "concatenate_axis: [1] x [1 1]: ", func(s *Scope) {
		s.Concat(0, FromSlice(s, []float32{1}), FromSlice(s, []float32{1}, 1, 1))
	})
	fails(t, "abs: the scope is closed", func(s *Scope) {
		c := s.Child()
		c.Close()
		c.Abs(FromSlice(s, []float32{1}))
	})
}

func TestAliasIsASecondHandle(t *testing.T) {
	do(t, func(s *Scope) {
		x := FromSlice(s, []int32{4})
		y := s.Alias(x)
		x.Close()
		v, err := Item[int32](s, y)
		require.NoError(t, err)
		require.EqualValues(t, 4, v)
	})
}

// mlx-c passes messages to printf as the format, so a percent sign in an argument must not get there.
func TestPercentInAStringArgumentIsRefused(t *testing.T) {
	fails(t, "einsum: [1]: string argument holds a percent sign", func(s *Scope) {
		s.Einsum("%s%n->", []*Array{FromSlice(s, []float32{1})})
	})
}

func TestPanicFreesOpenChildren(t *testing.T) {
	w := newTestWorker(t)
	require.Error(t, w.Do(t.Context(), func(s *Scope) error {
		a, b := s.Child(), s.Child()
		c := b.Child()
		for _, x := range []*Scope{a, b, c, s.Child()} {
			FromSlice(x, []float32{1})
		}
		a.Close()
		require.EqualValues(t, 3, LiveHandles())
		panic("with children open")
	}))
	require.Zero(t, LiveHandles())
}
