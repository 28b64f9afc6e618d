package tick

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLateEmitDoesNotMoveTheLaterOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, at := time.Now(), []time.Duration{}
		err := Emit(t.Context(), 10*time.Millisecond, 5, func(i int32) error {
			at = append(at, time.Since(start))
			if i == 1 {
				time.Sleep(15 * time.Millisecond)
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, []time.Duration{0, 10e6, 25e6, 30e6, 40e6}, at)
	})
}

func TestEmitEndsWithItsContextAndItsError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, Emit(ctx, time.Hour, 2, func(int32) error { return nil }), context.Canceled)
	broken := errors.New("broken")
	require.ErrorIs(t, Emit(t.Context(), 0, 2, func(int32) error { return broken }), broken)
}
