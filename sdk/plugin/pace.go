package plugin

import (
	"sync/atomic"
	"time"
)

const (
	// pacedStreams is how many streams may run without one waiting for another.
	pacedStreams = 4
	// pacePeriod is how long a token waits at most for others.
	pacePeriod = 20 * time.Millisecond
)

// pace has the tokens of many streams leave together: with more than pacedStreams each sends once in a period, and periods begin at the
// same moments for all, so that their messages leave in one flush. A message costs the host about as much as it costs to receive,
// whether it carries one token or three.
type pace struct {
	start   time.Time
	streams atomic.Int32
}

func newPace() *pace { return &pace{start: time.Now()} }

// join counts a stream until leave.
func (p *pace) join() (leave func()) {
	p.streams.Add(1)
	return func() { p.streams.Add(-1) }
}

// delay is how long a stream that sent at `sent` holds back what it has.
func (p *pace) delay(sent, now time.Time) time.Duration {
	if p.streams.Load() <= pacedStreams || sent.IsZero() {
		return 0
	}
	next := p.start.Add((sent.Sub(p.start)/pacePeriod + 1) * pacePeriod)
	return max(0, next.Sub(now))
}
