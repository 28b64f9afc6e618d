package supervise

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// pulse is how often a plugin is asked for its counts while a call runs that has no heartbeat of its own.
const pulse = time.Second

// Embed gives the embedding of ids.
func (p *Process) Embed(ctx context.Context, start *cladev1.EmbedStart, ids []int32) (*cladev1.EmbedResponse, error) {
	w, inner, err := p.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer w.leave()
	stream, err := p.rpc.Embed(inner)
	if err != nil {
		return nil, p.fault(ctx, err)
	}
	messages := []*cladev1.EmbedRequest{{Message: &cladev1.EmbedRequest_Start{Start: start}}}
	for c := range chunks(ids) {
		messages = append(messages, &cladev1.EmbedRequest{Message: &cladev1.EmbedRequest_Ids{Ids: c}})
	}
	messages = append(messages, &cladev1.EmbedRequest{Message: &cladev1.EmbedRequest_PromptEnd{PromptEnd: &cladev1.PromptEnd{}}})
	for _, m := range messages {
		if err := w.send(func() error { return stream.Send(m) }); err != nil {
			return nil, err
		}
	}
	defer w.watchCounts()()
	r, err := stream.CloseAndRecv()
	if errors.Is(err, io.EOF) {
		return nil, contract.Errorf(contract.Internal, p.spec.name(), "ended Embed without an answer")
	}
	if err != nil && ctx.Err() != nil && p.alive() {
		return nil, contract.Errorf(contract.Cancelled, p.spec.name(), "%w", context.Cause(ctx))
	}
	if err != nil {
		return nil, p.fault(ctx, err)
	}
	return r, nil
}

// watchCounts asks for the plugin's counts until the returned func is called: those stand in for a heartbeat.
func (w *watched) watchCounts() (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(pulse)
		defer t.Stop()
		answered := time.Now()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
			}
			r, err := w.p.Stats(w.ctx)
			switch {
			case err == nil:
				answered = time.Now()
				w.observe(&cladev1.Progress{Evaluations: r.GetEvaluations(), Tokens: r.GetPromptTokens() + r.GetGeneratedTokens()})
				w.waiting.Store(w.advanced.UnixNano())
			case w.ctx.Err() == nil && time.Since(answered) > w.p.spec.Silence:
				w.hung()
			}
		}
	}()
	return func() {
		close(quit)
		w.cancel()
		<-ended
	}
}
