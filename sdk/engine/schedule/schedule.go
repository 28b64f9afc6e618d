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
	// Begins is asked, where there is too little room for a row as it is, which whole blocks Restore would find: those that other rows
	// hold need none. Nil: there are no shared blocks.
	Begins func(*Row) []uint64
	// Cut is asked how many of n tokens behind the first ones a forward may take of a row; at least one. Nil: all of them.
	Cut func(first, n int) int
}

// Scheduler holds the rows. The zero value is of no use: see New.
type Scheduler struct {
	config    Config
	queue     []*Row
	slots     []*Row         // in the order of their admission
	free      int            // blocks
	held      map[uint64]int // blocks that rows hold by number, and how many rows do
	admitted  uint64
	turn      uint64 // forwards planned
	shared    uint64 // turn of the last forward that was not a row's alone
	chunks    int    // prefill chunks planned
	preempted uint64
}

// New makes a Scheduler without rows.
func New(c Config) *Scheduler {
	c.Rows, c.BlockTokens = max(c.Rows, 1), max(c.BlockTokens, 1)
	return &Scheduler{config: c, free: c.Blocks, held: map[uint64]int{}}
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
	s.letGo(r)
	s.free += r.blocks
	r.blocks, r.cached, r.behind = 0, 0, false
}

// Holds tells the numbers of the blocks that a row's first whole ones are. A block that several rows hold is counted once, from when
// all of them have said so.
func (s *Scheduler) Holds(r *Row, blocks []uint64) {
	if r.state != running {
		return
	}
	s.letGo(r)
	r.holds = blocks[:min(len(blocks), r.blocks)]
	for _, b := range r.holds {
		if s.held[b]++; s.held[b] > 1 {
			s.free++
		}
	}
}

// letGo forgets what a row shares: its blocks count as its own.
func (s *Scheduler) letGo(r *Row) {
	for _, b := range r.holds {
		if s.held[b]--; s.held[b] > 0 {
			s.free--
		} else {
			delete(s.held, b)
		}
	}
	r.holds = nil
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

// admit gives free slots to the best waiting rows whose known tokens fit. The best is not passed over for a smaller one. back are rows
// that did not fit after all.
func (s *Scheduler) admit(now time.Time) (admitted, back []*Row) {
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
		if s.free < 0 { // it did not find what it was admitted for
			r.apart = true
			s.putBack(r)
			back = append(back, r)
			continue
		}
		admitted = append(admitted, r)
	}
	return admitted, back
}

// admits reports whether the row that is next gets a slot now.
func (s *Scheduler) admits(now time.Time) bool {
	if len(s.slots) >= s.config.Rows || len(s.queue) == 0 {
		return false
	}
	r := s.queue[s.best(now)]
	return s.blocksFor(r.Tokens) <= s.free || s.needs(r) <= s.free
}

// needs is the blocks that a row takes beside those it would share.
func (s *Scheduler) needs(r *Row) int {
	n := s.blocksFor(r.Tokens)
	if s.config.Begins == nil || r.apart || n-len(s.held) > s.free {
		return n
	}
	for _, b := range s.config.Begins(r) {
		if s.held[b] > 0 {
			n--
		}
	}
	return n
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
