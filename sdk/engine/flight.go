package engine

import (
	"slices"
	"time"

	"github.com/clademl/clade/sdk/engine/schedule"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
)

// flight is one forward from its plan until its tokens are read.
type flight struct {
	segments []schedule.Segment
	rows     []*row // of the segments
	decoding int    // segments that decode
	drafted  int    // drafts in them
	prefill  int    // tokens of the others
	again    bool   // tokens are computed again after drafts
	queued   bool   // behind a flight that was not read
	began    time.Time

	hidden   *mlx.Array   // [1, T, hidden] where drafts are followed, kept until it is known which of them stay
	places   []int        // of the segments' first tokens along T
	observed []*mlx.Array // what the drafter wants evaluated

	logits *mlx.Array // [sampled tokens, vocab], kept until sampled
	asked  []int      // segments whose next token is sampled
	ends   *mlx.Array // [1, len(pooled), hidden], kept until read
	pooled []int      // segments that end a row that is embedded
	// draws are those of asked whose rows had not ended when their tokens were picked.
	draws   []*draw
	sampled *sampled // their tokens, kept until read
}

func (e *Engine) newFlight(p schedule.Plan, now time.Time) *flight {
	f := &flight{segments: p.Segments, began: now}
	for i, g := range p.Segments {
		r := e.rows[g.Row]
		f.rows = append(f.rows, r)
		switch {
		case r.gen != nil && g.Samples:
			f.asked = append(f.asked, i)
		case r.embed != nil && g.Samples:
			f.pooled = append(f.pooled, i)
		}
		f.drafted += g.Drafts
		switch own := g.Tokens - g.Drafts; {
		case g.Decodes() && g.First+own > r.prompt:
			f.decoding++
			f.again = f.again || own > 1
		default:
			f.prefill += own
		}
	}
	return f
}

// close frees what was kept, on the worker's thread.
func (f *flight) close() {
	f.logits.Close()
	f.hidden.Close()
	f.ends.Close()
	f.logits, f.hidden, f.ends = nil, nil, nil
	if f.sampled != nil {
		f.sampled.close()
		f.sampled = nil
	}
}

// overlap computes a forward of decoding rows on the tokens that are in flight: it is queued before they are read, and its own
// tokens are picked after, when it is known which rows go on, while the device computes.
func (e *Engine) overlap(next *flight) error {
	next.queued = e.flight != nil
	err := e.do(func(s *mlx.Scope) error {
		if err := e.forward(s, next, e.flight); err != nil {
			return err
		}
		if err := e.read(s, e.flight); err != nil {
			return err
		}
		err := e.pick(s, next)
		e.freeGarbage(s)
		return err
	})
	if err != nil {
		return err
	}
	e.flight = next
	return nil
}

// compute runs a forward to its end.
func (e *Engine) compute(f *flight) error {
	began := time.Now()
	err := e.do(func(s *mlx.Scope) error {
		defer e.freeGarbage(s)
		if r := f.rows[0]; r.score != nil {
			return e.scoreChunk(s, r, f.segments[0])
		}
		if err := e.computed(s, f); err != nil {
			return err
		}
		e.capture(s, f)
		return nil
	})
	if err != nil {
		return err
	}
	e.sched.Computed(f.segments)
	if f.prefill > 0 {
		e.paceOf(f.decoding).took(f.prefill, time.Since(began))
	}
	for i, g := range f.segments {
		e.prefilled(f.rows[i], g)
	}
	return nil
}

// computed runs a forward, and reads what it gives.
func (e *Engine) computed(s *mlx.Scope, f *flight) error {
	if err := e.forward(s, f, nil); err != nil {
		return err
	}
	if len(f.asked) == 0 {
		if err := s.Eval(caches(f)...); err != nil {
			return err
		}
		return e.pool(s, f)
	}
	if err := e.pool(s, f); err != nil {
		return err
	}
	if err := e.pick(s, f); err != nil {
		return err
	}
	return e.read(s, f)
}

// prefilled tells a row that generates how far its prompt is.
func (e *Engine) prefilled(r *row, g schedule.Segment) {
	done := min(g.First+g.Tokens, r.prompt)
	if done > r.counted {
		e.totals.promptTokens.Add(uint64(done - r.counted))
		r.counted = done
	}
	if r.gen != nil && !r.over && !g.Samples {
		r.tellPrefill(g.First + g.Tokens)
	}
	if done == r.prompt {
		e.letIn(r)
	}
}

// land reads what is in flight, with nothing queued behind it.
func (e *Engine) land() {
	f := e.flight
	if f == nil {
		return
	}
	err := e.do(func(s *mlx.Scope) error {
		defer e.freeGarbage(s)
		return e.read(s, f)
	})
	if err != nil {
		e.failed(f, err)
		return
	}
	e.flight = nil
}

// caches lists the buffers of every row in the forward.
func caches(f *flight) []*mlx.Array {
	var out []*mlx.Array
	for _, r := range f.rows {
		out = append(out, r.cache.Arrays()...)
	}
	return out
}

// forward queues a forward up to the logits of the segments that sample. before is the flight that has not been read.
func (e *Engine) forward(s *mlx.Scope, f, before *flight) error {
	segments := make([]kv.Segment, len(f.segments))
	var last, pooled []int32 // places along T of the tokens that the next ones follow, and of those that stand for their row
	total := 0
	for i, g := range f.segments {
		r := f.rows[i]
		if r.cache == nil {
			var err error
			if r.cache, err = e.newCache(s, r); err != nil {
				return err
			}
		}
		if g.Drafts > 0 {
			r.cache.Mark()
		}
		segments[i] = kv.Segment{Cache: r.cache, Tokens: g.Tokens, Keep: r.keeps(g)}
		f.places = append(f.places, total)
		total += g.Tokens
		if slices.Contains(f.asked, i) {
			for at := total - 1 - g.Drafts; at < total; at++ {
				last = append(last, int32(at))
			}
		}
		if slices.Contains(f.pooled, i) {
			pooled = append(pooled, int32(total-1))
		}
	}
	pass := kv.Begin(segments...)
	hidden := e.model.Forward(s, e.inputs(s, f, before, total), pass) // [1, T, hidden]
	pass.End()
	e.totals.evaluations.Add(1)
	e.totals.tokens.Add(uint64(total))
	queued := e.observeAll(s, f, hidden)
	if len(pooled) > 0 {
		f.ends = s.Keep(s.AsType(s.Take(hidden, mlx.FromSlice(s, pooled), 1), mlx.Float32))
	}
	if len(last) == 0 {
		s.Sweep(queued...)
		return s.AsyncEval(queued...)
	}
	if len(last) < total {
		hidden = s.Take(hidden, mlx.FromSlice(s, last), 1) // [1, n, hidden]
	}
	logits := s.AsType(s.Reshape(e.model.Unembed(s, hidden), len(last), e.layout.Vocab), mlx.Float32)
	f.logits = s.Keep(logits)
	s.Sweep(queued...)
	queued = append(queued, logits)
	for i, g := range f.segments {
		if !g.Samples {
			queued = append(queued, f.rows[i].cache.Arrays()...)
		}
	}
	return s.AsyncEval(queued...)
}

// inputs is the ids [1, T] of a forward. A token that is still in flight is taken from there.
func (e *Engine) inputs(s *mlx.Scope, f, before *flight, total int) *mlx.Array {
	known := make([]int32, 0, total)
	if before == nil || before.sampled == nil {
		for i, g := range f.segments {
			r := f.rows[i]
			known = append(known, r.ids[g.First:g.First+g.Tokens-g.Drafts]...)
			known = append(known, r.drafts[:g.Drafts]...)
		}
		return mlx.FromSlice(s, known, 1, total)
	}
	n := len(before.draws)
	places, straight := make([]int32, total), total == n
	for i, r := range f.rows { // one token each
		if at := slices.IndexFunc(before.draws, func(d *draw) bool { return d.row == r }); at >= 0 {
			places[i] = int32(at)
		} else {
			places[i] = int32(n + len(known))
			known = append(known, r.ids[len(r.ids)-1])
		}
		straight = straight && places[i] == int32(i)
	}
	if straight {
		return s.Reshape(before.sampled.tokens, 1, total)
	}
	all := before.sampled.tokens
	if len(known) > 0 {
		all = s.Concat(0, all, mlx.FromSlice(s, known))
	}
	return s.Reshape(s.Take(all, mlx.FromSlice(s, places), 0), 1, total)
}

// pick samples the next tokens of the rows that go on and queues them.
func (e *Engine) pick(s *mlx.Scope, f *flight) error {
	var places []int32
	all := 0
	for _, at := range f.asked {
		r, n := f.rows[at], f.segments[at].Drafts
		text := append(slices.Clip(r.ids), r.drafts[:n]...)
		for i := range n + 1 {
			if !r.over {
				f.draws = append(f.draws, &draw{row: r, segment: at, history: text[:len(r.ids)+i]})
				places = append(places, int32(all))
			}
			all++
		}
	}
	e.masks(f)
	logits := s.Adopt(f.logits)
	f.logits = nil
	if len(places) == 0 {
		return nil // nobody waits for what was queued
	}
	if len(places) < all {
		logits = s.Take(logits, mlx.FromSlice(s, places), 0)
	}
	f.sampled = e.sample(s, logits, f.draws)
	queued := f.sampled.arrays()
	for _, a := range queued {
		s.Keep(a)
	}
	s.Sweep()
	return s.AsyncEval(queued...)
}

// read waits for a flight's tokens and hands them out. The mailboxes are filled before anybody is woken twice, so that one step's
// tokens leave together.
func (e *Engine) read(s *mlx.Scope, f *flight) error {
	if f == nil {
		return nil
	}
	defer f.close()
	if f.sampled == nil {
		return nil
	}
	ids, logprobs, err := f.sampled.read(s, f.draws)
	if err != nil {
		return err
	}
	var rows []*row
	var tokens []int
	for i := 0; i < len(f.draws); {
		d := f.draws[i]
		n := f.segments[d.segment].Drafts + 1
		if before := d.generated(); !d.over {
			d.gen.usage.TargetCalls++
			if n > 1 {
				e.settle(s, f, d.segment, ids[i:i+n], logprobs[i:i+n])
			} else {
				e.seen(d.row, ids[i])
				e.got(d.row, ids[i], logprobs[i])
			}
			rows = append(rows, d.row)
			tokens = append(tokens, max(1, d.row.generated()-before)) // a token that ends the row is one too
		}
		i += n
	}
	e.timed(f, rows, tokens)
	return s.AsyncEval(f.observed...)
}
