package engine

import (
	"slices"
	"time"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine/lookahead"
	"github.com/clademl/clade/sdk/mlx"
)

// The kinds of drafts, as the contract spells them.
const (
	ngramKind    = "ngram"
	twoModelKind = "two-model"
)

// draftedTokens bounds the drafts of all rows in one forward: beyond, a forward computes more than a step waits for memory.
const draftedTokens = 32

// Speculation is what an engine drafts with.
type Speculation struct {
	// Drafter proposes; nil: nothing is drafted. The engine closes it.
	Drafter Drafter
	// Depth is the most tokens drafted for a row at once.
	Depth int
	// Step is what the drafter takes for one token, in the model's own steps, as far as headers tell; 0: they do not.
	Step float64
	// Always drafts Depth tokens wherever something can be proposed, whether it pays or not: for tests and measurements.
	Always bool
}

// tokens is how many drafts one forward may hold beside rows decoding tokens.
func (c Speculation) tokens(rows int) int {
	if c.Drafter == nil {
		return 0
	}
	return draftsOf(rows, c.Depth)
}

// draftsOf is how many drafts a forward of so many rows holds at most.
func draftsOf(rows, depth int) int { return min(rows*depth, max(depth, draftedTokens)) }

// speculation is the loop's side of drafting.
type speculation struct {
	Speculation
	value  *lookahead.Value
	follow Follower // the Drafter, if it is one
	free   Free     // the same
	behind Behind   // the same
	parked error    // why it never drafts again

	lastRead time.Time // when the last flight was read
	broke    bool      // plain steps were given up for drafts, and begin again
	round    round     // what was proposed for the forward that is next
}

// round is how a proposal went.
type round struct {
	depth, lag int
	took       time.Duration
}

func newSpeculation(c Speculation, rows int) *speculation {
	if c.Drafter == nil {
		return nil
	}
	p := &speculation{Speculation: c}
	p.follow, _ = c.Drafter.(Follower)
	p.behind, _ = c.Drafter.(Behind)
	var free bool
	p.free, free = c.Drafter.(Free)
	p.value = lookahead.NewValue(lookahead.Drafter{Tokens: c.tokens(rows), Depth: c.Depth, Step: c.Step, Free: free})
	return p
}

// draftKind is the kind of what drafts; empty when nothing does.
func (e *Engine) draftKind() string {
	if e.speculation == nil || e.totals.draftFailures.Load() > 0 {
		return ""
	}
	return e.speculation.Drafter.Kind()
}

// why is why nothing is drafted at present; empty while that promises something, and without a drafter.
func (p *speculation) why() string {
	switch {
	case p == nil || p.Always && p.parked == nil:
		return ""
	case p.parked != nil:
		return "the draft failed: " + p.parked.Error()
	}
	return p.value.Parked()
}

// tellParked makes why readable from outside.
func (e *Engine) tellParked() {
	why := e.speculation.why()
	e.totals.draftParked.Store(&why)
}

// drafts reports whether drafts might be made for anything.
func (p *speculation) drafts() bool { return p != nil && p.parked == nil }

// depthOf is the most tokens drafted for a row.
func (p *speculation) depthOf(r *row) int {
	g := r.gen
	if g == nil || g.depth == 0 || r.failed {
		return 0
	}
	if g.constraint != nil {
		if _, ok := g.constraint.(Rollbacker); !ok {
			return 0
		}
	}
	n := min(p.Depth, r.Limit-len(r.ids)-1)
	if g.depth > 0 {
		n = min(n, g.depth)
	}
	return max(0, n)
}

// depths says how many tokens to draft for each row that decodes next, when each has ahead tokens that are not read yet.
func (e *Engine) depths(rows []*row, ahead int) ([]int, []lookahead.Prospect) {
	p := e.speculation
	prospects := make([]lookahead.Prospect, len(rows))
	for i, r := range rows {
		prospects[i].Row = &r.drafting
		if most := p.depthOf(r); most > ahead {
			n, class := p.Drafter.Expects(&r.text, ahead, most-ahead)
			prospects[i].Most, prospects[i].Class = max(0, n), class
			if p.behind != nil {
				prospects[i].Lag = p.behind.Behind(&r.text) + ahead
			}
		}
	}
	if !p.Always {
		return p.value.Depths(prospects, ahead), prospects
	}
	out, left := make([]int, len(rows)), p.tokens(e.config.Rows)
	for i, one := range prospects {
		out[i] = min(one.Most, left)
		left -= out[i]
	}
	return out, prospects
}

// decoding lists the rows that the next forward decodes.
func (e *Engine) decoding() []*row {
	var rows []*row
	for _, r := range e.sched.Decoding() {
		rows = append(rows, e.rows[r])
	}
	return rows
}

// awaits reports whether drafts are likely to pay once the tokens in flight are read: then nothing is queued on them.
func (e *Engine) awaits() bool {
	if !e.speculation.drafts() || e.flight == nil {
		return false
	}
	depths, _ := e.depths(e.decoding(), 1)
	e.speculation.broke = slices.ContainsFunc(depths, func(n int) bool { return n > 0 })
	return e.speculation.broke
}

// propose has drafts made for the rows that decode next, with nothing in flight. It reports whether there are any.
func (e *Engine) propose() (any bool) {
	p := e.speculation
	if !p.drafts() || e.flight != nil {
		return false
	}
	rows := e.decoding()
	depths, prospects := e.depths(rows, 0)
	asked, began := &Round{engine: e}, time.Now()
	p.round = round{}
	for i, r := range rows {
		if depths[i] > 0 {
			asked.Asks = append(asked.Asks, &Ask{Text: &r.text, Most: depths[i], class: prospects[i].Class, draw: r.guess()})
			p.round.depth, p.round.lag = max(p.round.depth, depths[i]), max(p.round.lag, prospects[i].Lag)
		}
	}
	if len(asked.Asks) == 0 {
		return false
	}
	err := e.do(func(s *mlx.Scope) error {
		err := p.Drafter.Propose(s, asked)
		s.Sweep()
		return err
	})
	if err != nil {
		e.park(err)
		return false
	}
	any = e.proposed(asked)
	p.broke, p.round.took = true, time.Since(began)
	if !any {
		p.value.Wasted(accounts(rows), p.round.took)
		e.tellParked()
	}
	return any
}

// proposed takes what the drafter made of a round. It reports whether that is anything.
func (e *Engine) proposed(asked *Round) (any bool) {
	for _, a := range asked.Asks {
		n := min(len(a.Drafts), a.Most)
		if bad := slices.IndexFunc(a.Drafts[:n], func(id int32) bool { return id < 0 || int(id) >= e.layout.Vocab }); bad >= 0 {
			n = bad // MLX does not check indices
		}
		r := a.row
		r.drafts, r.class, r.Drafts = a.Drafts[:n], a.class, n
		any = any || n > 0
	}
	return any
}

// guess is the row's next draw as a draft is picked: nothing of it is reported, and the constraint is left to the target.
func (r *row) guess() draw {
	if r.shadow == nil {
		request := *r.gen.request
		request.logprobs = nil
		r.shadow = &row{prompt: r.prompt, gen: &generation{request: &request, sampler: r.gen.sampler}}
	}
	return draw{row: r.shadow, history: slices.Clone(r.ids)}
}

// park ends drafting: the rows go on with plain steps. What the drafter queued is waited for, so that its failure is not taken for
// that of the forward that comes next.
func (e *Engine) park(cause error) {
	e.speculation.parked = cause
	e.totals.draftFailures.Add(1)
	e.tellParked()
	for _, r := range e.rows {
		e.forgetDrafts(r)
	}
	_ = e.do(func(s *mlx.Scope) error {
		err := s.Synchronize()
		e.freeGarbage(s)
		return err
	})
}

// forgetDrafts gives up what the drafter keeps of a row.
func (e *Engine) forgetDrafts(r *row) {
	r.drafts, r.Drafts = nil, 0
	if r.text.State != nil {
		e.garbage = append(e.garbage, r.text.State)
		r.text.State = nil
	}
}

// follows reports whether the drafter takes in what the model computes of a row. A row that is not followed from its beginning is not
// later, and one that is as long as drafts promise something or have not been tried in it.
func (p *speculation) follows(r *row) bool {
	if r.heard == undecided {
		r.heard = unheard
		if p.Always || p.value.Follows() {
			r.heard = followed
		}
	}
	if r.heard == followed && !p.Always && r.gen.usage.DraftRounds > 0 && !p.value.Promising() {
		r.heard = unheard
	}
	return r.heard == followed
}

// observe hands the drafter the hidden states of a segment's tokens that stay, and returns what it wants evaluated.
func (e *Engine) observe(s *mlx.Scope, r *row, first int, hidden *mlx.Array) []*mlx.Array {
	if !e.speculation.drafts() || e.speculation.follow == nil || r.gen == nil || r.gen.depth == 0 || r.failed || !e.speculation.follows(r) {
		return nil
	}
	own := s.Apart()
	queued := e.speculation.follow.Follow(own, &r.text, first, hidden)
	if err := own.Err(); err != nil {
		e.speculation.parked = err
		e.totals.draftFailures.Add(1)
		e.tellParked()
		return nil
	}
	for i, a := range queued {
		queued[i] = s.Alias(a) // it may be kept elsewhere
	}
	own.Close()
	return queued
}

// observeAll hands the drafter what a forward computed of the segments whose tokens all stay, and keeps the others' until they are
// read. It returns what is to be evaluated.
func (e *Engine) observeAll(s *mlx.Scope, f *flight, hidden *mlx.Array) (queued []*mlx.Array) {
	if !e.speculation.drafts() || e.speculation.follow == nil {
		return nil
	}
	for i, g := range f.segments {
		if g.Drafts == 0 {
			queued = append(queued, e.observe(s, f.rows[i], g.First, s.SliceAxis(hidden, 1, f.places[i], f.places[i]+g.Tokens))...)
		}
	}
	if f.drafted > 0 {
		f.hidden = s.Keep(s.Alias(hidden))
	}
	return queued
}

// settle takes what the target picked behind a row's last token and behind each of its drafts: the drafts that it agrees with, and
// the token after them.
func (e *Engine) settle(s *mlx.Scope, f *flight, g int, ids []int32, logprobs []*cladev1.TokenLogprobs) {
	r, segment := f.rows[g], f.segments[g]
	drafts := r.drafts[:segment.Drafts]
	r.drafts = nil
	accepted := 0
	for accepted < len(drafts) && accepted < len(ids)-1 && ids[accepted] == drafts[accepted] {
		accepted++
	}
	kept := segment.Tokens - len(drafts) + accepted
	held := r.cache.Rewind(segment.First + kept)
	e.counted(r, len(drafts), accepted)
	for i := range accepted + 1 {
		if r.over {
			return
		}
		e.got(r, ids[i], logprobs[i])
	}
	if r.over {
		return
	}
	e.sched.Settle(&r.Row, held, len(r.ids))
	if e.speculation.follow != nil && f.hidden != nil {
		states := s.SliceAxis(f.hidden, 1, f.places[g], f.places[g]+kept)
		f.observed = append(f.observed, e.observe(s, r, segment.First, states)...)
	}
}

// counted keeps the figures of one row's round.
func (e *Engine) counted(r *row, drafted, accepted int) {
	u := r.gen.usage
	u.Drafted, u.Accepted, u.DraftRounds = u.Drafted+uint32(drafted), u.Accepted+uint32(accepted), u.DraftRounds+1
	e.totals.rounds.Add(1)
	e.totals.drafted.Add(uint64(drafted))
	e.totals.accepted.Add(uint64(accepted))
	e.speculation.value.Accepted(&r.drafting, r.class, drafted, accepted)
}

// seen tells whether what would have been drafted for a row in a plain step was right, where that costs nothing to know.
func (e *Engine) seen(r *row, id int32) {
	p := e.speculation
	if !p.drafts() || p.free == nil || r.gen.depth == 0 || r.failed {
		return
	}
	if guess, class, ok := p.free.Guess(&r.text); ok {
		p.value.Seen(&r.drafting, class, guess == id)
	}
}

// accounts are what is known of drafting for rows.
func accounts(rows []*row) []*lookahead.Row {
	out := make([]*lookahead.Row, len(rows))
	for i, r := range rows {
		out[i] = &r.drafting
	}
	return out
}

// timed learns from a flight that was read: how long its tokens took, and how many each of its rows got.
func (e *Engine) timed(f *flight, rows []*row, tokens []int) {
	p, now := e.speculation, time.Now()
	if !p.drafts() || len(rows) == 0 {
		return
	}
	last := p.lastRead
	p.lastRead = now
	alone := f.decoding == len(f.segments) // prefill has a pace of its own
	switch {
	case f.drafted > 0:
		checked := now.Sub(f.began) - p.round.took
		if !alone {
			checked = 0
		}
		p.value.Verified(lookahead.Round{
			Rows: accounts(rows), Tokens: tokens, Drafted: f.drafted, Depth: p.round.depth, Lag: p.round.lag,
			Proposing: p.round.took, Checking: checked,
		})
		e.tellParked()
		p.broke = alone
	case !alone:
		p.broke = false
	case len(rows) != f.decoding: // some ended meanwhile
	case f.queued:
		p.value.Plain(accounts(rows), now.Sub(last))
		p.broke = false
	case f.again || p.broke:
		p.value.Restarted(accounts(rows), now.Sub(f.began))
		p.broke = f.again
	}
}
