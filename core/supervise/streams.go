package supervise

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// idsPerChunk keeps a chunk of ids, at most ten bytes each, under the message budget.
const idsPerChunk = contract.MessageBudget / 16

// watched is one stream under the watchdog. The timer runs only inside a send or receive: a host that is slow to read is no
// hang of the plugin's.
type watched struct {
	p      *Process
	ctx    context.Context // the stream's own: ends with the caller's, and with leave
	cancel context.CancelFunc
	once   sync.Once

	// Of Recv only: the timer, the heartbeat's counts and when they last advanced.
	timer    *time.Timer
	counts   [2]uint64
	advanced time.Time
	returned time.Time // when the last Recv returned

	// waiting is advanced while a Recv waits, in nanoseconds since 1970, and 0 while the host reads nothing.
	waiting atomic.Int64
}

// readerPause is how long the host may stay away from a stream before what it then finds says nothing of the plugin's pace.
const readerPause = 500 * time.Millisecond

// enter begins a stream; leave ends it, more than once is fine.
func (p *Process) enter(ctx context.Context) (*watched, context.Context, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return nil, nil, contract.Errorf(contract.Unavailable, p.spec.name(), "the plugin is stopping")
	}
	inner, cancel := context.WithCancel(ctx)
	w := &watched{p: p, ctx: inner, cancel: cancel, advanced: time.Now()}
	w.timer = time.AfterFunc(p.spec.Silence, w.hung)
	w.timer.Stop()
	p.streams[w] = struct{}{}
	return w, inner, nil
}

func (w *watched) leave() {
	w.once.Do(func() {
		w.timer.Stop()
		w.cancel()
		w.p.mu.Lock()
		delete(w.p.streams, w)
		w.p.mu.Unlock()
	})
}

func (w *watched) hung() {
	w.p.child.kill(contract.Errorf(contract.PluginCrashed, w.p.spec.name(),
		"hang: nothing came for %s and it was killed", w.p.spec.Silence))
}

// send runs one Send under a timer of its own, as Send and Recv may overlap. A Send that fails with io.EOF leaves the reason to
// the next Recv.
func (w *watched) send(fn func() error) error {
	t := time.AfterFunc(w.p.spec.Silence, w.hung)
	defer t.Stop()
	if err := fn(); err != nil && !errors.Is(err, io.EOF) {
		return w.p.fault(w.ctx, err)
	}
	return nil
}

// recv runs one Recv under the watchdog and ends the stream when it fails.
func recv[T any](w *watched, fn func() (T, error)) (T, error) {
	if now := time.Now(); now.Sub(w.returned) > readerPause {
		w.advanced = now
	}
	w.timer.Reset(w.p.spec.Silence)
	w.waiting.Store(w.advanced.UnixNano())
	m, err := fn()
	w.waiting.Store(0)
	w.timer.Stop()
	w.returned = time.Now()
	if err != nil {
		err = w.p.fault(w.ctx, err)
		w.leave()
	}
	return m, err
}

// observe judges a heartbeat: nil is any other event, which always counts as progress.
func (w *watched) observe(beat *cladev1.Progress) {
	now := time.Now()
	counts := [2]uint64{beat.GetEvaluations(), beat.GetTokens()}
	if beat == nil || counts != w.counts {
		w.advanced = now
	}
	if beat != nil {
		w.counts = counts
	}
	if now.Sub(w.advanced) > w.p.spec.Stall {
		w.p.child.kill(contract.Errorf(contract.PluginCrashed, w.p.spec.name(),
			"hang: no progress for %s and it was killed", w.p.spec.Stall))
	}
}

// Stalled is the longest time that a running stream has waited for the plugin to move on; 0 while none runs. Heartbeats with
// the same counts are no movement.
func (p *Process) Stalled() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest, now := time.Duration(0), time.Now().UnixNano()
	for w := range p.streams {
		if since := w.waiting.Load(); since != 0 {
			longest = max(longest, time.Duration(now-since))
		}
	}
	return longest
}

// Open loads the model. on gets every event before the last, in order; nil drops them.
func (p *Process) Open(ctx context.Context, req *cladev1.OpenRequest, on func(*cladev1.OpenResponse)) (*cladev1.ModelFacts, error) {
	w, inner, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer w.leave()
	stream, err := p.rpc.Open(inner, req)
	if err != nil {
		return nil, p.fault(ctx, err)
	}
	var facts *cladev1.ModelFacts
	for {
		r, err := recv(w, stream.Recv)
		switch {
		case errors.Is(err, io.EOF) && facts == nil:
			return nil, contract.Errorf(contract.Internal, p.spec.name(), "ended Open without the model's facts")
		case errors.Is(err, io.EOF):
			return facts, nil
		case err != nil:
			return nil, err
		case r.GetOpened() != nil:
			facts = r.GetOpened()
		case on != nil:
			on(r)
		}
	}
}

// GenerateStream is one running request. Recv is for one goroutine; Control and Close may be called from others.
type GenerateStream struct {
	w      *watched
	mu     sync.Mutex // one sender at a time
	stream grpc.BidiStreamingClient[cladev1.GenerateRequest, cladev1.GenerateResponse]
}

// Generate starts a request: start, the ids in chunks, media, and the prompt's end. The caller receives until an error, or
// closes; cancelling ctx ends it too.
func (p *Process) Generate(ctx context.Context, start *cladev1.GenerateStart, ids []int32, media ...*cladev1.MediaChunk) (*GenerateStream, error) {
	w, inner, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := p.rpc.Generate(inner)
	if err != nil {
		w.leave()
		return nil, p.fault(ctx, err)
	}
	g := &GenerateStream{w: w, stream: stream}
	messages := []*cladev1.GenerateRequest{{Message: &cladev1.GenerateRequest_Start{Start: start}}}
	for c := range chunks(ids) {
		messages = append(messages, &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Ids{Ids: c}})
	}
	for _, m := range media {
		messages = append(messages, &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Media{Media: m}})
	}
	messages = append(messages, &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_PromptEnd{PromptEnd: &cladev1.PromptEnd{}}})
	for _, m := range messages {
		if err := g.send(m); err != nil {
			w.leave()
			return nil, err
		}
	}
	return g, nil
}

func (g *GenerateStream) send(m *cladev1.GenerateRequest) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.w.send(func() error { return g.stream.Send(m) })
}

// Recv returns the next event; io.EOF after the finish event.
func (g *GenerateStream) Recv() (*cladev1.GenerateResponse, error) {
	r, err := recv(g.w, g.stream.Recv)
	if err == nil {
		g.w.observe(r.GetProgress())
	}
	return r, err
}

// Control sends a stop or a cancel.
func (g *GenerateStream) Control(c *cladev1.Control) error {
	return g.send(&cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Control{Control: c}})
}

// Close gives the request up. After io.EOF it does nothing.
func (g *GenerateStream) Close() { g.w.leave() }

// chunks cuts ids into messages under the budget.
func chunks(ids []int32) func(yield func(*cladev1.IdsChunk) bool) {
	return func(yield func(*cladev1.IdsChunk) bool) {
		for len(ids) > 0 {
			n := min(len(ids), idsPerChunk)
			if !yield(&cladev1.IdsChunk{Ids: ids[:n]}) {
				return
			}
			ids = ids[n:]
		}
	}
}

// Score runs a forward over ids; on gets the frames in order and ends the call by an error.
func (p *Process) Score(ctx context.Context, start *cladev1.ScoreStart, ids []int32, on func(*cladev1.ScoreFrame) error) (*cladev1.Usage, error) {
	w, inner, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer w.leave()
	stream, err := p.rpc.Score(inner)
	if err != nil {
		return nil, p.fault(ctx, err)
	}
	messages := []*cladev1.ScoreRequest{{Message: &cladev1.ScoreRequest_Start{Start: start}}}
	for c := range chunks(ids) {
		messages = append(messages, &cladev1.ScoreRequest{Message: &cladev1.ScoreRequest_Ids{Ids: c}})
	}
	messages = append(messages, &cladev1.ScoreRequest{Message: &cladev1.ScoreRequest_PromptEnd{PromptEnd: &cladev1.PromptEnd{}}})
	for _, m := range messages {
		if err := w.send(func() error { return stream.Send(m) }); err != nil {
			return nil, err
		}
	}
	return p.readScore(w, stream, on)
}

func (p *Process) readScore(w *watched, stream grpc.BidiStreamingClient[cladev1.ScoreRequest, cladev1.ScoreResponse],
	on func(*cladev1.ScoreFrame) error,
) (*cladev1.Usage, error) {
	var usage *cladev1.Usage
	for {
		r, err := recv(w, stream.Recv)
		switch {
		case errors.Is(err, io.EOF) && usage == nil:
			return nil, contract.Errorf(contract.Internal, p.spec.name(), "ended Score without its last event")
		case errors.Is(err, io.EOF):
			return usage, nil
		case err != nil:
			return nil, err
		}
		w.observe(r.GetProgress())
		if f := r.GetFrame(); f != nil {
			if err := on(f); err != nil {
				return nil, err
			}
		}
		if r.GetDone() != nil {
			usage = r.GetDone()
		}
	}
}
