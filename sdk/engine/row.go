package engine

import (
	"sync"
	"time"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine/adapters"
	"github.com/clademl/clade/sdk/engine/lookahead"
	"github.com/clademl/clade/sdk/engine/schedule"
	"github.com/clademl/clade/sdk/kv"
)

// row is one request in the engine. The loop alone touches it, but for its mailbox and what never changes.
type row struct {
	schedule.Row
	ids    []int32 // prompt, and what was generated and read
	prompt int     // how many of them are prompt
	before int     // how many were generated before a restart
	cache  *kv.Cache
	gen    *generation // all but one of these are nil
	score  *scoring
	embed  *embedding
	mail   mailbox
	// adapters stay the row's until it is released.
	adapters adapters.Taken

	source *source // what it attends to beside its tokens; nil: nothing

	text     Text          // what a drafter sees of it
	drafts   []int32       // proposed behind ids, in the forward that is next or computing
	class    int           // of the drafts
	drafting lookahead.Row // what is known of its drafts
	heard    hearing
	shadow   *row // what drafts are drawn for; nil until one is

	followers []*row // choices of the same prompt that wait until it is computed

	captures []int // see capturesOf
	passes   bool  // a forward may pass one of them
	stop     int32 // the id that ended the text, which is not one of ids, if stopped
	stopped  bool

	parted             bool // the request's goroutine knows that it ended
	over               bool // it ended: what is still in flight for it means nothing
	failed             bool // a forward with it failed
	restored           int  // tokens that its cache got from the prefix cache
	looked             bool // its lookup in the prefix cache was counted
	counted            int  // tokens of the prompt that Stats has
	submitted, started time.Time
	first              time.Time // when its first token was read
}

// hearing is whether the drafter takes in what the model computes of a row.
type hearing int

const (
	undecided hearing = iota
	unheard
	followed
)

// generation is what a row that generates is asked for.
type generation struct {
	*request
	sampler    *sampler
	constraint Constraint // or nil
	usage      *cladev1.Usage
	stopAt     int // the host's last token, -1 while it named none
}

// generated is how many tokens the row has generated, before a restart too.
func (r *row) generated() int { return len(r.ids) - r.prompt }

// letter is what a request's goroutine has to pass on: all that happened since the last one.
type letter struct {
	prefill  *cladev1.PrefillProgress
	ids      []int32
	logprobs []*cladev1.TokenLogprobs
	scores   []scores
	over     bool
	err      error
	finish   *cladev1.Finish
	done     *cladev1.Usage // of a row that scored, or was embedded
	vector   []float32      // of a row that was embedded
}

// mailbox carries letters from the loop, which never waits, to the request's goroutine.
type mailbox struct {
	mu      sync.Mutex
	next    letter
	arrived chan struct{}
}

func newMailbox() mailbox { return mailbox{arrived: make(chan struct{}, 1)} }

func (m *mailbox) write(change func(*letter)) {
	m.mu.Lock()
	change(&m.next)
	m.mu.Unlock()
	select {
	case m.arrived <- struct{}{}:
	default:
	}
}

func (m *mailbox) read() letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.next
	m.next = letter{}
	return l
}

// held is how much lies there unread.
func (m *mailbox) held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.next.ids) + maxUnread*len(m.next.scores)
}

// maxUnread is how many tokens may lie unread before a row waits for its reader.
const maxUnread = 4096
