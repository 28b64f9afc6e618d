package serve

import (
	"context"
	"sync"
)

// drainState counts running requests, so that a drain can refuse new ones while the listener still answers them.
type drainState struct {
	mu       sync.Mutex
	running  int
	draining bool
	idle     chan struct{}
}

// enter admits a request; false while draining.
func (d *drainState) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return false
	}
	d.running++
	return true
}

func (d *drainState) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running--
	if d.draining && d.running == 0 {
		close(d.idle)
	}
}

func (d *drainState) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return
	}
	d.draining, d.idle = true, make(chan struct{})
	if d.running == 0 {
		close(d.idle)
	}
}

func (d *drainState) isDraining() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draining
}

// wait returns when no request runs, or with ctx's error.
func (d *drainState) wait(ctx context.Context) error {
	select {
	case <-d.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
