package supervise

import (
	"fmt"
	"sync"
	"time"

	"github.com/clademl/clade/sdk/contract"
)

// State of a plugin process.
type State uint8

// A Process goes from Starting to Ready, between Ready and Busy, through Draining or not to Dead. Absent is the state of a
// plugin that has no Process.
const (
	Absent State = iota
	Starting
	Ready
	Busy
	Draining
	Dead
)

func (s State) String() string {
	names := [...]string{"absent", "starting", "ready", "busy", "draining", "dead"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Breaker decides when a plugin that died may be started again: after a back-off that doubles with each crash, and not at
// all once it crashed Max times within Window without work done between. The zero value is ready: 5 crashes in 10 minutes, 100 ms to 30 s.
type Breaker struct {
	Max         int
	Window      time.Duration
	First, Most time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time

	mu      sync.Mutex
	crashes []time.Time
	streak  int
	last    error
}

func (b *Breaker) settings() (most int, window, first, limit time.Duration) {
	most, window, first, limit = b.Max, b.Window, b.First, b.Most
	if most == 0 {
		most = 5
	}
	if window == 0 {
		window = 10 * time.Minute
	}
	if first == 0 {
		first = 100 * time.Millisecond
	}
	if limit == 0 {
		limit = 30 * time.Second
	}
	return most, window, first, limit
}

func (b *Breaker) now() time.Time {
	if b.Now != nil {
		return b.Now()
	}
	return time.Now()
}

// Crashed records a death or a failed start.
func (b *Breaker) Crashed(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	most, _, _, _ := b.settings()
	b.crashes = append(b.crashes, b.now())
	if len(b.crashes) > most {
		b.crashes = b.crashes[len(b.crashes)-most:]
	}
	b.streak++
	b.last = cause
}

// Worked ends the back-off and forgets the crashes: a request ended well, or one that outlived a crash moved on.
func (b *Breaker) Worked() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streak, b.crashes = 0, nil
}

// Next says how long to wait before the next start, or that none is allowed: PluginCrashed with the last cause.
func (b *Breaker) Next() (time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	most, window, first, limit := b.settings()
	now := b.now()
	for len(b.crashes) > 0 && now.Sub(b.crashes[0]) >= window {
		b.crashes = b.crashes[1:]
	}
	if len(b.crashes) >= most {
		again := b.crashes[0].Add(window).Sub(now)
		return 0, contract.Errorf(contract.PluginCrashed, "plugin", "crashed %d times within %s, last: %w", most, window,
			b.last).WithNext("it is not started again for %s; `clade doctor` may tell more", again.Round(time.Second))
	}
	if b.streak == 0 || len(b.crashes) == 0 {
		return 0, nil
	}
	delay := first
	for i := 1; i < b.streak && delay < limit; i++ {
		delay *= 2
	}
	return max(0, b.crashes[len(b.crashes)-1].Add(min(delay, limit)).Sub(now)), nil
}
