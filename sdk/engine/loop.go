package engine

import (
	"context"
	"errors"
	"time"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine/schedule"
	"github.com/clademl/clade/sdk/mlx"
)

// loop is the goroutine that owns the scheduler, the rows and all that is in flight. Close ends it.
func (e *Engine) loop() {
	defer close(e.ended)
	for {
		closing := e.hear()
		if closing && e.sched.Idle() {
			e.land()
			e.part()
			return
		}
		if e.turn() {
			e.part()
		} else {
			<-e.wake
		}
	}
}

// tell has fn run by the loop, before its next forward. It reports false when the loop has ended.
func (e *Engine) tell(fn func()) bool {
	e.mu.Lock()
	if e.deaf {
		e.mu.Unlock()
		return false
	}
	e.said = append(e.said, fn)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
	return true
}

// hear runs what was told, and says whether the engine is closing. Once it closes with no row left it hears no more.
func (e *Engine) hear() (closing bool) {
	for {
		e.mu.Lock()
		said := e.said
		e.said = nil
		if len(said) == 0 {
			e.deaf = e.closing && e.sched.Idle()
			closing = e.closing
			e.mu.Unlock()
			return closing
		}
		e.mu.Unlock()
		for _, fn := range said {
			fn()
		}
		e.part()
	}
}

// turn computes the next forward; false when there is none.
func (e *Engine) turn() bool {
	now := time.Now()
	overlaps := e.sched.Decodes(now)
	if (!overlaps || e.awaits()) && e.flight != nil {
		e.land()
		return true
	}
	if e.propose() {
		overlaps = false
	}
	plan := e.sched.Next(now, e.chunk)
	for _, r := range plan.Admitted {
		e.admitted(e.rows[r], now)
	}
	for _, r := range plan.PutBack {
		e.discard(e.rows[r])
	}
	if len(plan.PutBack) > 0 { // others take their room in this forward
		_ = e.do(func(s *mlx.Scope) error { e.freeGarbage(s); return nil })
	}
	e.publish()
	if len(plan.Segments) == 0 {
		if e.flight == nil {
			return false
		}
		e.land()
		return true
	}
	next := e.newFlight(plan, now)
	var err error
	if overlaps {
		err = e.overlap(next)
	} else {
		err = e.compute(next)
	}
	if err != nil {
		e.failed(next, err)
	}
	return true
}

// chunk is how many tokens of prefill a forward takes beside rows that decode.
func (e *Engine) chunk(decoding int) int { return e.paceOf(decoding).next }

func (e *Engine) paceOf(decoding int) *pace {
	if decoding > 0 {
		return &e.beside
	}
	return &e.pace
}

// admitted is told of a row that got a slot.
func (e *Engine) admitted(r *row, now time.Time) {
	if !r.started.IsZero() {
		return // it was put back before
	}
	r.started = now
	e.totals.queueNs.Add(uint64(now.Sub(r.submitted)))
	if r.gen != nil {
		r.gen.usage.QueueNs = uint64(now.Sub(r.submitted))
		r.gen.usage.CachedTokens = uint32(min(r.restored, r.prompt))
		r.tellPrefill(r.restored)
	}
}

func (r *row) tellPrefill(done int) {
	progress := &cladev1.PrefillProgress{Done: uint32(done), Total: uint32(len(r.ids)), Cached: r.gen.usage.CachedTokens}
	r.mail.write(func(l *letter) { l.prefill = progress })
}

// discard gives a row's cache up.
func (e *Engine) discard(r *row) {
	if r.cache != nil {
		e.garbage = append(e.garbage, r.cache)
		r.cache = nil
	}
	e.forgetDrafts(r)
}

// part frees discarded caches and tells the rows that ended so: what a request took is free when it returns.
func (e *Engine) part() {
	if len(e.garbage)+len(e.leaving) > 0 {
		_ = e.do(func(s *mlx.Scope) error { e.freeGarbage(s); return nil })
	}
	for _, farewell := range e.farewells {
		farewell()
	}
	e.farewells = e.farewells[:0]
}

// freeGarbage runs on the worker's thread. What rows that ended had computed is kept first.
func (e *Engine) freeGarbage(s *mlx.Scope) {
	for _, r := range e.leaving {
		e.remember(s, r, r.known())
		e.discard(r)
	}
	e.leaving = e.leaving[:0]
	for _, c := range e.garbage {
		c.Close()
	}
	e.garbage = e.garbage[:0]
}

// end takes a row out with its last words. What is in flight for it is not read.
func (e *Engine) end(r *row, last func(*letter)) {
	if r.over {
		return
	}
	r.over = true
	e.sched.Leave(&r.Row)
	delete(e.rows, &r.Row)
	e.letIn(r)
	if e.worthKeeping(r) {
		e.leaving = append(e.leaving, r)
	} else {
		e.discard(r)
	}
	if r.gen != nil && r.gen.constraint != nil {
		r.gen.constraint.Close()
	}
	e.publish()
	e.farewells = append(e.farewells, func() {
		r.mail.write(func(l *letter) {
			l.over = true
			if last != nil {
				last(l)
			}
		})
	})
}

// endWith takes a row out with an error.
func (e *Engine) endWith(r *row, err error) { e.end(r, func(l *letter) { l.err = err }) }

// publish makes the scheduler's counts readable from outside.
func (e *Engine) publish() {
	active, queued, putBack := e.sched.Counts()
	e.totals.active.Store(int32(active))
	e.totals.queued.Store(int32(queued))
	e.totals.putBack.Store(putBack)
	e.totals.freeBlocks.Store(int64(e.sched.FreeBlocks()))
}

// failed drops everything in flight, whose results are undefined now, and lets the scheduler try its rows alone. A row that was
// alone already ends with the error.
func (e *Engine) failed(next *flight, cause error) {
	e.totals.failures.Add(1)
	for _, r := range e.leaving { // theirs may be undefined too
		e.discard(r)
	}
	e.leaving = e.leaving[:0]
	flights := []*flight{next}
	if e.flight != nil {
		flights = append(flights, e.flight)
		e.flight = nil
	}
	var rows []*schedule.Row
	for _, f := range flights {
		for _, r := range f.rows {
			if r.over {
				continue
			}
			e.discard(r)
			r.failed = true
			r.Tokens = len(r.ids)
			rows = append(rows, &r.Row)
		}
	}
	_ = e.worker.Do(context.Background(), func(s *mlx.Scope) error {
		err := s.Synchronize()
		for _, f := range flights {
			f.close()
		}
		e.freeGarbage(s)
		return err
	})
	for _, r := range e.sched.Failed(unique(rows)) {
		e.endWith(e.rows[r], cause)
	}
}

func unique(rows []*schedule.Row) []*schedule.Row {
	seen := map[*schedule.Row]bool{}
	out := rows[:0]
	for _, r := range rows {
		if !seen[r] {
			out = append(out, r)
		}
		seen[r] = true
	}
	return out
}

// do runs fn on the worker's thread.
func (e *Engine) do(fn func(*mlx.Scope) error) error {
	err := e.worker.Do(context.Background(), func(s *mlx.Scope) error {
		return errors.Join(fn(s), s.Err())
	})
	var known *contract.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return contract.Errorf(contract.Internal, "evaluation", "%w", err)
}
