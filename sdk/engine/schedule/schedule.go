package schedule

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// Aging is how long a row waits until it counts as one priority better, so that none waits for ever.
const Aging = 10 * time.Second

// Why rows are not taken.
var (
	// ErrBusy: as many rows wait as may.
	ErrBusy = errors.New("the queue is full")
	// ErrTooLong: the row's tokens would never fit the blocks.
	ErrTooLong = errors.New("more tokens than the caches hold")
)

// Config is the room there is.
type Config struct {
	Rows  int // slots
	Queue int // rows that may wait
	// Blocks of BlockTokens tokens each are what all caches together may hold.
	Blocks, BlockTokens int
	// Restore is asked when a row gets a slot: how many of its first tokens are in its cache already, because they were found in a
	// kept one. One token at least is computed again. Nil: none ever.
	Restore func(*Row) int
	// Cut is asked how many of n tokens behind the first ones a forward may take of a row; at least one. Nil: all of them.
	Cut func(first, n int) int
}

// Scheduler holds the rows. The zero value is of no use: see New.
type Scheduler struct {
	config    Config
	queue     []*Row
	slots     []*Row // in the order of their admission
	free      int    // blocks
	admitted  uint64
	turn      uint64 // forwards planned
	shared    uint64 // turn of the last forward that was not a row's alone
	chunks    int    // prefill chunks planned
	preempted uint64
}

// New makes a Scheduler without rows.
func New(c Config) *Scheduler {
	c.Rows, c.BlockTokens = max(c.Rows, 1), max(c.BlockTokens, 1)
	return &Scheduler{config: c, free: c.Blocks}
}

// Submit queues a row.
func (s *Scheduler) Submit(r *Row, now time.Time) error {
	if s.blocksFor(r.Limit) > s.config.Blocks {
		return ErrTooLong
	}
	if len(s.queue) >= s.config.Queue && (len(s.slots) >= s.config.Rows || len(s.queue) > 0) {
		return ErrBusy
	}
	r.arrived, r.state = now, waiting
	s.queue = append(s.queue, r)
	return nil
}

// Leave takes a row out, finished or cancelled: its slot and blocks are free at once.
func (s *Scheduler) Leave(r *Row) {
	s.queue = slices.DeleteFunc(s.queue, func(q *Row) bool { return q == r })
	s.vacate(r)
	r.state = gone
}

// vacate frees the row's slot and blocks.
func (s *Scheduler) vacate(r *Row) {
	s.slots = slices.DeleteFunc(s.slots, func(q *Row) bool { return q == r })
	s.release(r)
}

func (s *Scheduler) release(r *Row) {
	s.free += r.blocks
	r.blocks, r.cached, r.behind = 0, 0, false
}

// Pause keeps a row from being planned while its reader is behind. It keeps its slot.
func (s *Scheduler) Pause(r *Row, paused bool) { r.paused = paused }

// Counts are the rows with a slot and those without, and how often a row was put back for want of blocks.
func (s *Scheduler) Counts() (active, queued int, preempted uint64) {
	return len(s.slots), len(s.queue), s.preempted
}

// FreeBlocks is what no cache holds.
func (s *Scheduler) FreeBlocks() int { return s.free }

// Idle reports whether there is no row at all.
func (s *Scheduler) Idle() bool { return len(s.slots) == 0 && len(s.queue) == 0 }

func (s *Scheduler) blocksFor(tokens int) int {
	return (tokens + s.config.BlockTokens - 1) / s.config.BlockTokens
}

// admit gives free slots to the best waiting rows whose known tokens fit. The best is not passed over for a smaller one.
func (s *Scheduler) admit(now time.Time) (admitted []*Row) {
	for s.admits(now) {
		at := s.best(now)
		r := s.queue[at]
		need := s.blocksFor(r.Tokens)
		s.queue = slices.Delete(s.queue, at, at+1)
		s.admitted++
		s.free -= need
		r.state, r.blocks, r.admitted = running, need, s.admitted
		s.slots = append(s.slots, r)
		if s.config.Restore != nil {
			r.cached = min(s.config.Restore(r), r.Tokens-1)
		}
		admitted = append(admitted, r)
	}
	return admitted
}

// admits reports whether the row that is next gets a slot now.
func (s *Scheduler) admits(now time.Time) bool {
	return len(s.slots) < s.config.Rows && len(s.queue) > 0 && s.blocksFor(s.queue[s.best(now)].Tokens) <= s.free
}

// best is the place in the queue of the row that is next: by priority, better by one for every Aging waited, then by arrival.
func (s *Scheduler) best(now time.Time) int {
	level := func(r *Row) int64 { return int64(r.Priority) - int64(now.Sub(r.arrived)/Aging) }
	at := 0
	for i, r := range s.queue {
		b := s.queue[at]
		if cmp.Or(cmp.Compare(level(r), level(b)), r.arrived.Compare(b.arrived)) < 0 {
			at = i
		}
	}
	return at
}

// grow takes blocks for a row that will hold tokens, putting back rows that were admitted after it. It fails when r itself is
// the last one.
func (s *Scheduler) grow(r *Row, tokens int, preempt func(*Row)) bool {
	need := s.blocksFor(tokens) - r.blocks
	for need > s.free {
		last := s.slots[len(s.slots)-1]
		if last == r {
			preempt(r)
			return false
		}
		preempt(last)
	}
	if need > 0 {
		s.free -= need
		r.blocks += need
	}
	return true
}

// putBack returns a row to the queue, where its arrival places it before later ones.
func (s *Scheduler) putBack(r *Row) {
	s.vacate(r)
	s.preempted++
	r.state, r.Drafts = waiting, 0
	s.queue = append(s.queue, r)
}
