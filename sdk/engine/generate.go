package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

// Generate runs one request beside others. The token that ends it (EOS or a stop id) is not emitted and not counted.
func (e *Engine) Generate(ctx context.Context, job *plugin.GenerateJob, emit func(*cladev1.GenerateResponse) error) error {
	req, err := e.check(job)
	if err != nil {
		return err
	}
	taken, err := e.takeAdapters(job.Start.Adapter)
	if err != nil {
		return err
	}
	defer taken.Release()
	r, err := e.newRow(req)
	if err != nil {
		return err
	}
	r.adapters = taken
	if r.generated() >= req.limit {
		return emit(finished(e.finish(r, cladev1.FinishReason_FINISH_REASON_LENGTH)))
	}
	if req.remember {
		e.fetch(ctx, r.namespace(), r.ids)
	}
	if err := e.submit(r); err != nil {
		return err
	}
	defer e.release(r)
	return e.follow(ctx, r, req.control, func(l letter) error { return emitLetter(l, emit) })
}

// newRow makes the row of a request, its constraint driven through what was generated before.
func (e *Engine) newRow(req *request) (*row, error) {
	r := &row{
		ids: slices.Clone(req.ids), source: req.source, prompt: req.prompt, before: len(req.ids) - req.prompt, mail: newMailbox(),
		gen: &generation{
			request: req, sampler: newSampler(req, e.layout.Vocab), stopAt: -1,
			usage: &cladev1.Usage{PromptTokens: uint32(req.prompt), GeneratedTokens: uint32(len(req.ids) - req.prompt)},
		},
	}
	r.Tokens, r.Limit, r.Priority = len(r.ids), r.prompt+req.limit, req.priority
	r.text.row = r
	var err error
	r.gen.constraint, err = e.constrain(req)
	return r, err
}

// emitLetter passes a letter on to the host.
func emitLetter(l letter, emit func(*cladev1.GenerateResponse) error) error {
	if l.prefill != nil {
		if err := emit(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Prefill{Prefill: l.prefill}}); err != nil {
			return err
		}
	}
	if len(l.ids) > 0 {
		step := &cladev1.TokenStep{Ids: l.ids, Logprobs: l.logprobs}
		if err := emit(&cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Step{Step: step}}); err != nil {
			return err
		}
	}
	if l.finish != nil {
		return emit(finished(l.finish))
	}
	return nil
}

func finished(f *cladev1.Finish) *cladev1.GenerateResponse {
	return &cladev1.GenerateResponse{Event: &cladev1.GenerateResponse_Finish{Finish: f}}
}

// follow passes a row's letters on until it is over.
func (e *Engine) follow(ctx context.Context, r *row, control <-chan *cladev1.Control, pass func(letter) error) error {
	c := cut{passed: r.before, last: -1}
	heed := func(m *cladev1.Control) {
		last := int(m.GetStopAt())
		c.last = last
		e.tell(func() { e.stopAt(r, last) })
	}
	for {
		select {
		case <-r.mail.arrived:
		case m := <-control:
			heed(m)
			continue
		case <-ctx.Done():
			return cancelled(ctx)
		}
		l := r.mail.read()
		for len(control) > 0 {
			heed(<-control)
		}
		c.trim(&l)
		if err := pass(l); err != nil {
			return err
		}
		if l.over {
			r.parted = true
			return l.err
		}
		if len(l.ids) >= maxUnread || len(l.scores) > 0 { // it waits for its reader
			e.tell(func() { e.sched.Pause(&r.Row, r.mail.held() >= maxUnread) })
		}
	}
}

// cut ends a stream behind the token that the host named, however far ahead of it the engine is.
type cut struct {
	passed int // tokens passed on
	last   int // index of the last one wanted; -1: all
}

func (c *cut) trim(l *letter) {
	if c.last >= 0 {
		n := max(0, min(len(l.ids), c.last+1-c.passed))
		l.ids = l.ids[:n]
		l.logprobs = l.logprobs[:min(n, len(l.logprobs))]
		if l.finish != nil && int(l.finish.Usage.GeneratedTokens) > c.last+1 {
			l.finish.Reason, l.finish.Usage.GeneratedTokens = cladev1.FinishReason_FINISH_REASON_STOP, uint32(c.last+1)
		}
	}
	c.passed += len(l.ids)
}

// stopAt is told by the host, perhaps after more tokens have been emitted.
func (e *Engine) stopAt(r *row, n int) {
	if r.over {
		return
	}
	r.gen.stopAt = n
	if r.generated() > n {
		e.finishRow(r, cladev1.FinishReason_FINISH_REASON_STOP)
	}
}

// got takes a row's next token.
func (e *Engine) got(r *row, id int32, logprobs *cladev1.TokenLogprobs) {
	now := time.Now()
	if r.first.IsZero() {
		r.first = now
		if e.speculation != nil {
			e.speculation.value.Arrived()
		}
	}
	g := r.gen
	if slices.Contains(g.stops, id) {
		r.stop, r.stopped = id, true
		e.finishRow(r, cladev1.FinishReason_FINISH_REASON_STOP)
		return
	}
	r.ids = append(r.ids, id)
	e.totals.generatedTokens.Add(1)
	r.mail.write(func(l *letter) {
		l.ids = append(l.ids, id)
		if logprobs != nil {
			l.logprobs = append(l.logprobs, logprobs)
		}
	})
	if g.constraint != nil {
		if err := g.constraint.Commit(id); err != nil {
			e.endWith(r, err)
			return
		}
	}
	switch {
	case g.stopAt >= 0 && r.generated() > g.stopAt:
		e.finishRow(r, cladev1.FinishReason_FINISH_REASON_STOP)
	case g.constraint != nil && g.constraint.Done():
		e.finishRow(r, cladev1.FinishReason_FINISH_REASON_CONSTRAINT)
	case r.generated() >= g.limit:
		e.finishRow(r, cladev1.FinishReason_FINISH_REASON_LENGTH)
	case r.mail.held() >= maxUnread:
		e.sched.Pause(&r.Row, true)
	}
}

func (e *Engine) finishRow(r *row, reason cladev1.FinishReason) {
	f := e.finish(r, reason)
	e.totals.finished.Add(1)
	e.totals.prefillNs.Add(f.Usage.PrefillNs)
	e.totals.decodeNs.Add(f.Usage.DecodeNs)
	e.end(r, func(l *letter) { l.finish = f })
}

func (e *Engine) finish(r *row, reason cladev1.FinishReason) *cladev1.Finish {
	g := r.gen
	g.usage.GeneratedTokens = uint32(r.generated())
	if g.stopAt >= 0 {
		g.usage.GeneratedTokens = uint32(min(r.generated(), g.stopAt+1))
	}
	if !r.first.IsZero() {
		g.usage.PrefillNs, g.usage.DecodeNs = uint64(r.first.Sub(r.started)), uint64(time.Since(r.first))
	}
	g.usage.DraftParked = e.speculation.why()
	provenance := proto.Clone(e.config.Provenance).(*cladev1.Provenance)
	provenance.Threads, provenance.Resumed, provenance.Adapters, provenance.DraftKind = e.threads(), g.resumed, r.adapters.Names, e.draftKind()
	if g.sampling.temperature > 0 {
		provenance.Seed = &g.sampling.noise.Seed
	}
	return &cladev1.Finish{Reason: reason, Usage: g.usage, Provenance: provenance}
}

func cancelled(ctx context.Context) error {
	return contract.Errorf(contract.Cancelled, "request", "%w", context.Cause(ctx))
}

// topLogprobs finds the n likeliest ids of a row, ties to the lowest.
func topLogprobs(id int32, row []float32, n int) *cladev1.TokenLogprobs {
	out := &cladev1.TokenLogprobs{Id: id}
	if int(id) < len(row) {
		out.Logprob = row[id]
	}
	better := func(a, b *cladev1.TopLogprob) int {
		return cmp.Or(cmp.Compare(b.Logprob, a.Logprob), cmp.Compare(a.Id, b.Id))
	}
	for i, v := range row {
		if len(out.Top) == n && (n == 0 || v <= out.Top[n-1].Logprob) {
			continue
		}
		entry := &cladev1.TopLogprob{Id: int32(i), Logprob: v}
		at, _ := slices.BinarySearchFunc(out.Top, entry, better)
		out.Top = slices.Insert(out.Top, at, entry)
		out.Top = out.Top[:min(len(out.Top), n)]
	}
	return out
}
