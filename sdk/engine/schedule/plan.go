package schedule

import (
	"cmp"
	"slices"
	"time"
)

// oldestEvery is how often the prefill chunk goes to the row admitted first instead of the one with the least left: short
// prompts answer soon, and a long one is not held up for ever.
const oldestEvery = 4

// Segment is what a row contributes to a forward.
type Segment struct {
	Row    *Row
	First  int // tokens in its cache before
	Tokens int
	// Samples: the forward takes the row's last token, so that the next one is sampled.
	Samples bool
	// Drafts are the last ones of Tokens: proposals behind the row's last token. Settle tells what came of them.
	Drafts int

	decodes bool
}

// Decodes reports whether the segment is a decoding row's: one token, its drafts aside, or those computed again.
func (g Segment) Decodes() bool { return g.decodes }

// Plan is one forward, and what changed for it to be possible.
type Plan struct {
	Segments []Segment
	// Admitted rows got a slot; PutBack rows lost theirs, and with it their caches.
	Admitted, PutBack []*Row
}

// Decodes reports whether the next forward, if there is one, holds only rows that decode together: it may be built on tokens that
// are not read yet. Before any other forward these have to be read.
func (s *Scheduler) Decodes(now time.Time) bool {
	if s.admits(now) {
		return false
	}
	for _, r := range s.slots {
		if r.ready() && (r.trial || r.Alone || r.Reads || r.left() > 1 || r.cached == 0) {
			return false
		}
	}
	return true
}

// Decoding lists the rows that the next forward decodes together, so that drafts can be made for them.
func (s *Scheduler) Decoding() []*Row {
	if s.nextAlone() != nil {
		return nil
	}
	var rows []*Row
	for _, r := range s.slots {
		if r.ready() && !r.Alone && r.left() == 1 {
			rows = append(rows, r)
		}
	}
	return rows
}

// Settle tells what came of a row's drafts: its cache holds the first cached of tokens tokens.
func (s *Scheduler) Settle(r *Row, cached, tokens int) {
	if r.state == running {
		r.cached, r.Tokens, r.behind = cached, tokens, tokens-cached > 1
	}
}

// Next admits rows and plans a forward, empty when there is nothing to compute. chunk says how many tokens of prefill it may hold
// beside decoding rows. What is planned counts as computed until Failed says otherwise.
func (s *Scheduler) Next(now time.Time, chunk func(decoding int) int) Plan {
	var p Plan
	p.Admitted, p.PutBack = s.admit(now)
	if r := s.nextAlone(); r != nil {
		r.ran = s.turn + 1
		s.take(&p, r, chunk(0))
	} else {
		s.shared = s.turn + 1
		s.together(&p, chunk)
	}
	if len(p.Segments) > 0 {
		s.turn++
	}
	for _, g := range p.Segments {
		g.Row.cached += g.Tokens
		if g.Samples {
			g.Row.Tokens++
			g.Row.behind = false
		}
	}
	for _, r := range s.slots {
		r.Drafts = 0
	}
	return p
}

// together plans one token of every row that decodes, and prefill.
func (s *Scheduler) together(p *Plan, chunk func(decoding int) int) {
	for _, r := range slices.Clone(s.slots) {
		if r.ready() && !r.Alone && r.decodes() {
			s.take(p, r, r.left())
		}
	}
	for left := chunk(len(p.Segments)); left > 0; {
		r := s.nextPrefill(p)
		if r == nil || !s.take(p, r, left) {
			return
		}
		left -= p.Segments[len(p.Segments)-1].Tokens
	}
}

// take puts up to most tokens of a row into the plan, unless the row is put back for want of blocks.
func (s *Scheduler) take(p *Plan, r *Row, most int) bool {
	if r.state != running { // put back for a row before it
		return false
	}
	left, drafts := r.left(), 0
	n := min(left, max(most, 1))
	if r.Most > 0 {
		n = min(n, r.Most)
	}
	if left == 1 && s.blocksFor(r.cached+1+r.Drafts)-r.blocks <= s.free { // nobody is put back for a guess
		drafts = min(r.Drafts, r.Limit-r.Tokens-1)
	}
	for _, cut := range []func(first, n int) int{s.config.Cut, r.Cut} {
		if cut != nil {
			most := max(1, cut(r.cached, n+drafts))
			n = min(n, most)
			drafts = min(drafts, most-n)
		}
	}
	preempt := func(victim *Row) {
		p.Segments = slices.DeleteFunc(p.Segments, func(g Segment) bool { return g.Row == victim })
		p.PutBack = append(p.PutBack, victim)
		s.putBack(victim)
	}
	if !s.grow(r, r.cached+n+drafts, preempt) {
		return false
	}
	p.Segments = append(p.Segments, Segment{
		Row: r, First: r.cached, Tokens: n + drafts, Samples: n == left, Drafts: drafts, decodes: r.decodes() && n == left,
	})
	return true
}

// Computed tells that a planned forward came out well: rows on trial whose token was sampled are as good as any again.
func (s *Scheduler) Computed(segments []Segment) {
	for _, g := range segments {
		if g.Samples {
			g.Row.trial = false
		}
	}
}

// aloneAfter is how many failed forwards of a row, each of which it survived alone, keep it from being computed with others.
const aloneAfter = 2

// Failed tells that forwards with these rows failed: what they put into caches is lost, and the caller has set Tokens back to
// the ids that are known. They are tried again alone. Condemned are the ones that failed on trial: the caller ends them.
func (s *Scheduler) Failed(rows []*Row) (condemned []*Row) {
	for _, r := range rows {
		if r.state != running {
			continue
		}
		if r.trial {
			condemned = append(condemned, r)
			continue
		}
		r.cached, r.trial, r.behind = 0, true, false
		if r.failures++; r.failures >= aloneAfter {
			r.Alone = true
		}
	}
	return condemned
}

// nextPrefill is the row whose prompt is continued.
func (s *Scheduler) nextPrefill(p *Plan) *Row {
	var rows []*Row
	for _, r := range s.slots {
		planned := slices.ContainsFunc(p.Segments, func(g Segment) bool { return g.Row == r })
		if r.ready() && !r.Alone && !r.decodes() && !planned {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	s.chunks++
	if s.chunks%oldestEvery == 0 {
		return rows[0]
	}
	return slices.MinFunc(rows, func(a, b *Row) int {
		return cmp.Or(cmp.Compare(a.left(), b.left()), cmp.Compare(a.admitted, b.admitted))
	})
}

// nextAlone is the row that has the next forward for itself: one on trial before all, else those that always run alone, in turns
// with the others together.
func (s *Scheduler) nextAlone() *Row {
	var next *Row
	together := false
	for _, r := range s.slots {
		switch {
		case !r.ready():
		case r.trial:
			return r
		case !r.Alone:
			together = true
		case next == nil || r.ran < next.ran:
			next = r
		}
	}
	if next != nil && together && next.ran > s.shared {
		return nil
	}
	return next
}
