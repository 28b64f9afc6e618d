package engine

import (
	"slices"
	"time"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine/schedule"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
)

// flight is one forward from its plan until its tokens are read.
type flight struct {
	segments []schedule.Segment
	rows     []*row // of the segments
	decoding int    // segments that decode

	logits *mlx.Array // [len(samples), vocab], kept until sampled
	asked  []int      // segments whose next token is sampled
	tokens *mlx.Array // int32 [len(draws)], kept until read
	// draws are what tokens are for: those of asked whose rows had not ended when the tokens were picked.
	draws    []*draw
	logprobs []*mlx.Array // [vocab] for each of them, nil where not asked for
}

func (e *Engine) newFlight(p schedule.Plan) *flight {
	f := &flight{segments: p.Segments}
	for i, g := range p.Segments {
		r := e.rows[g.Row]
		f.rows = append(f.rows, r)
		if r.gen != nil && g.Samples {
			f.asked = append(f.asked, i)
		}
		if g.Tokens == 1 && g.First >= r.prompt {
			f.decoding++
		}
	}
	return f
}

// close frees what was kept, on the worker's thread.
func (f *flight) close() {
	f.logits.Close()
	f.tokens.Close()
	for _, a := range f.logprobs {
		a.Close()
	}
	f.logits, f.tokens, f.logprobs = nil, nil, nil
}

// overlap computes a forward of decoding rows on the tokens that are in flight: it is queued before they are read, and its own
// tokens are picked after, when it is known which rows go on, while the device computes.
func (e *Engine) overlap(next *flight) error {
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
	tokens := 0
	for _, g := range f.segments {
		tokens += g.Tokens
	}
	err := e.do(func(s *mlx.Scope) error {
		defer e.freeGarbage(s)
		if r := f.rows[0]; r.score != nil {
			return e.scoreChunk(s, r, f.segments[0])
		}
		if err := e.forward(s, f, nil); err != nil {
			return err
		}
		if len(f.asked) == 0 {
			return s.Eval(caches(f)...)
		}
		if err := e.pick(s, f); err != nil {
			return err
		}
		return e.read(s, f)
	})
	if err != nil {
		return err
	}
	e.sched.Computed(f.segments)
	if tokens > f.decoding {
		e.paceOf(f.decoding).took(tokens-f.decoding, time.Since(began))
	}
	for i, g := range f.segments {
		e.prefilled(f.rows[i], g)
	}
	return nil
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
	var last []int32 // places along T of the tokens that the next ones follow
	total := 0
	for i, g := range f.segments {
		r := f.rows[i]
		if r.cache == nil {
			r.cache = e.newCache()
		}
		segments[i] = kv.Segment{Cache: r.cache, Tokens: g.Tokens}
		total += g.Tokens
		if slices.Contains(f.asked, i) {
			last = append(last, int32(total-1))
		}
	}
	pass := kv.Begin(segments...)
	hidden := e.model.Forward(s, e.inputs(s, f, before, total), pass) // [1, T, hidden]
	pass.End()
	e.totals.evaluations.Add(1)
	e.totals.tokens.Add(uint64(total))
	if len(last) == 0 {
		s.Sweep()
		return s.Err()
	}
	if len(last) < total {
		hidden = s.Take(hidden, mlx.FromSlice(s, last), 1) // [1, n, hidden]
	}
	logits := s.AsType(s.Reshape(e.model.Unembed(s, hidden), len(last), e.layout.Vocab), mlx.Float32)
	f.logits = s.Keep(logits)
	s.Sweep()
	queued := []*mlx.Array{logits}
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
	if before == nil || before.tokens == nil {
		for i, g := range f.segments {
			known = append(known, f.rows[i].ids[g.First:g.First+g.Tokens]...)
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
		return s.Reshape(before.tokens, 1, total)
	}
	all := before.tokens
	if len(known) > 0 {
		all = s.Concat(0, all, mlx.FromSlice(s, known))
	}
	return s.Reshape(s.Take(all, mlx.FromSlice(s, places), 0), 1, total)
}

// pick samples the next tokens of the rows that go on and queues them.
func (e *Engine) pick(s *mlx.Scope, f *flight) error {
	var places []int32
	for i, at := range f.asked {
		if r := f.rows[at]; !r.over {
			f.draws = append(f.draws, &draw{row: r, history: r.ids})
			places = append(places, int32(i))
		}
	}
	e.masks(f)
	logits := s.Adopt(f.logits)
	f.logits = nil
	if len(places) == 0 {
		return nil // nobody waits for what was queued
	}
	if len(places) < len(f.asked) {
		logits = s.Take(logits, mlx.FromSlice(s, places), 0)
	}
	tokens, logprobs := e.sample(s, logits, f.draws)
	f.tokens = s.Keep(tokens)
	for _, a := range logprobs {
		if a != nil {
			s.Keep(a)
		}
	}
	f.logprobs = logprobs
	s.Sweep()
	queued := []*mlx.Array{f.tokens}
	for _, a := range f.logprobs {
		if a != nil {
			queued = append(queued, a)
		}
	}
	return s.AsyncEval(queued...)
}

// read waits for a flight's tokens and hands them out. The mailboxes are filled before anybody is woken twice, so that one step's
// tokens leave together.
func (e *Engine) read(s *mlx.Scope, f *flight) error {
	if f == nil || f.tokens == nil {
		return nil
	}
	defer f.close()
	ids, err := mlx.ToSlice[int32](s, f.tokens)
	if err != nil {
		return err
	}
	logprobs := make([]*cladev1.TokenLogprobs, len(ids))
	for i, d := range f.draws {
		if f.logprobs[i] == nil || d.over {
			continue
		}
		values, err := mlx.ToSlice[float32](s, f.logprobs[i])
		if err != nil {
			return err
		}
		logprobs[i] = topLogprobs(ids[i], values, int(d.gen.logprobs.GetTop()))
	}
	for i, d := range f.draws {
		if !d.over {
			e.got(d.row, ids[i], logprobs[i])
		}
	}
	return nil
}
