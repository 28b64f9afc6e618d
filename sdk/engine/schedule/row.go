package schedule

import "time"

// Row is one request as the Scheduler sees it. The caller sets the first group before Submit and leaves the second alone.
type Row struct {
	// Priority orders the queue: lower is sooner, as vLLM has it; 0 is usual.
	Priority int32
	// Tokens is how many token ids there are: the prompt and what was generated, tokens that are sampled but not read included.
	Tokens int
	// Limit is the most tokens there will ever be. A row that reached it has nothing left to compute.
	Limit int
	// Alone keeps others out of the row's forwards.
	Alone bool
	// Reads: what a forward of the row gives is read before another is planned.
	Reads bool
	// Most bounds the tokens of one forward of the row; 0 does not.
	Most int
	// Cut says how many of n tokens behind the first ones a forward of the row may take, one at least; nil: all of them.
	Cut func(first, n int) int
	// Drafts is how many tokens are proposed behind the row's last one, to be checked in its next forward. Next leaves them out where
	// there is no room.
	Drafts int

	state    state
	trial    bool // it runs alone until a token is sampled: a forward with it failed
	cached   int  // tokens that its forwards have put, or are putting, into its cache
	blocks   int
	holds    []uint64 // its first whole blocks, by number, which other rows may hold too
	apart    bool     // it is admitted only where there is room for all of its blocks
	arrived  time.Time
	admitted uint64 // number of its admission; later is larger
	ran      uint64 // turn of its last forward alone
	failures int    // forwards that failed with it
	paused   bool
	behind   bool // tokens are computed again because a cache could not go back to them exactly: it decodes all the same
}

type state int

const (
	gone    state = iota // not submitted yet, or left
	waiting              // in the queue
	running              // has a slot
)

// Cached is the number of tokens in the row's cache once what was planned is computed.
func (r *Row) Cached() int { return r.cached }

// Waits reports whether the row has no slot.
func (r *Row) Waits() bool { return r.state == waiting }

// left is how many tokens the next forwards have to take before one is sampled; 0 when the last one is sampled already.
func (r *Row) left() int {
	if r.Tokens >= r.Limit {
		return 0
	}
	return r.Tokens - r.cached
}

// decodes reports whether the row's next forward is one of decoding.
func (r *Row) decodes() bool { return r.left() == 1 || r.behind && r.left() > 1 }

// ready reports whether a forward could take tokens of the row now.
func (r *Row) ready() bool { return !r.paused && r.left() > 0 }
