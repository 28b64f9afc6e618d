package loader

import (
	"context"
	"sync"
)

// court keeps a suspect, a request that was there when several processes died, apart from the others: it runs alone until its
// first token. Others wait meanwhile; a suspect waits for those that run. The zero value is ready.
type court struct {
	mu       sync.Mutex
	running  int
	alone    bool // the one that runs is on trial
	suspects int  // that wait
	changed  chan struct{}
}

// seat is one request's place in the process.
type seat struct {
	court *court
	alone bool
}

// enter waits for a place. subject names the model in the error of a context that ends.
func (c *court) enter(ctx context.Context, suspect bool, subject string) (*seat, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if suspect {
		c.suspects++
		defer func() {
			c.suspects--
			c.wake()
		}()
	}
	for !c.free(suspect) {
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = cancelled(ctx, subject)
		}
		c.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	c.running++
	c.alone = suspect
	return &seat{court: c, alone: suspect}, nil
}

func (c *court) free(suspect bool) bool {
	if suspect {
		return c.running == 0
	}
	return !c.alone && c.suspects == 0
}

// wake tells those that wait to look again; under mu.
func (c *court) wake() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// acquit lets others in: the request moved on.
func (s *seat) acquit() {
	if !s.alone {
		return
	}
	s.court.mu.Lock()
	defer s.court.mu.Unlock()
	s.alone, s.court.alone = false, false
	s.court.wake()
}

// leave gives the place up and says whether the request was alone to its end.
func (s *seat) leave() (alone bool) {
	s.court.mu.Lock()
	defer s.court.mu.Unlock()
	alone = s.alone
	s.court.running--
	if alone {
		s.court.alone = false
	}
	s.court.wake()
	return alone
}
