// Package tick emits at fixed times: the same clock for the plugin and for the bare stream that it is compared with.
package tick

import (
	"context"
	"time"
)

// Emit calls emit n times, the i-th at start + i*interval. A late call does not move the later ones, so that two senders
// that are not slower than the interval send equally often.
func Emit(ctx context.Context, interval time.Duration, n int, emit func(i int32) error) error {
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range n {
		timer.Reset(time.Until(start.Add(time.Duration(i) * interval)))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		if err := emit(int32(i)); err != nil {
			return err
		}
	}
	return nil
}
