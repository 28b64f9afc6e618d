package check

import (
	"context"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func answerChecks() []check {
	return []check{
		{"generate", "an answer is a stream of steps that ends with one finish event and true counts", (*subject).checkGenerate},
		{"repeat", "one request has one answer, however its ids are cut into messages", (*subject).checkRepeat},
		{"stream-order", "a stream out of order is refused, and the next one works", (*subject).checkStreamOrder},
		{"generate-unknown", "a field that it does not know ends a request by number, in its start and in a control message", (*subject).checkGenerateUnknown},
		{"prompt-limits", "a prompt that is empty, too long or not of the vocabulary is refused", (*subject).checkPromptLimits},
		{"cancel", "a cancelled request ends at once and gives its place back", (*subject).checkCancel},
		{"stop-at", "the host's last token is the last that counts", (*subject).checkStopAt},
		{"score", "scores are those of the model that generates", (*subject).checkScore},
	}
}

// generating is the shared process, for a plugin that generates.
func (s *subject) generating(ctx context.Context) (*process, error) {
	if err := s.needs("Generate"); err != nil {
		return nil, err
	}
	return s.opened(ctx)
}

func (s *subject) checkGenerate(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	a, err := s.straight(ctx, p, usualPrompt, 0)
	if err != nil {
		return err
	}
	f := a.finish
	if o := f.Provenance; o == nil || o.Plugin != s.manifest.Name || o.Device != s.planned.Device || o.GraphEntry != s.planned.GraphEntry {
		return fmt.Errorf("provenance is %v; plugin, device and graph_entry are due", o)
	}
	if s.declared["sampling.ignore_eos"] && f.Reason != cladev1.FinishReason_FINISH_REASON_LENGTH {
		return fmt.Errorf("finish reason is %s after %d tokens with ignore_eos; LENGTH is due", f.Reason, len(a.ids))
	}
	for _, most := range []uint32{0, 1} {
		b, err := s.generate(ctx, p, ask{ids: s.prompt(usualPrompt, 0), start: func(g *cladev1.GenerateStart) { g.MaxTokens = &most }})
		if err != nil {
			return fmt.Errorf("max_tokens %d: %w", most, err)
		}
		if len(b.ids) > int(most) {
			return fmt.Errorf("max_tokens %d: %d tokens came", most, len(b.ids))
		}
	}
	return nil
}

func (s *subject) checkRepeat(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	want, err := s.straight(ctx, p, usualPrompt, 0)
	if err != nil {
		return err
	}
	for _, chunk := range []int{0, 1, 7} {
		got, err := s.generate(ctx, p, ask{ids: s.prompt(usualPrompt, 0), chunk: chunk})
		if err != nil {
			return err
		}
		if err := s.equal("the same request again", want.ids, got.ids); err != nil {
			return err
		}
	}
	return nil
}

func (s *subject) checkStreamOrder(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	start, ids := startOf(s.start(nil)), idsOf(s.prompt(4, 0)...)
	stop := control(&cladev1.Control{Action: &cladev1.Control_StopAt{StopAt: 0}})
	cases := []struct {
		what string
		send []*cladev1.GenerateRequest
	}{
		{"ids before start", []*cladev1.GenerateRequest{ids, start, promptEnd()}},
		{"two starts", []*cladev1.GenerateRequest{start, start, ids, promptEnd()}},
		{"no prompt_end", []*cladev1.GenerateRequest{start, ids}},
		{"control before prompt_end", []*cladev1.GenerateRequest{start, ids, stop, promptEnd()}},
		{"ids behind prompt_end", []*cladev1.GenerateRequest{s.long(), ids, promptEnd(), ids}},
		{"an empty message", []*cladev1.GenerateRequest{start, {}, ids, promptEnd()}},
	}
	return each(cases, func(c struct {
		what string
		send []*cladev1.GenerateRequest
	},
	) error {
		if wrong := refusal(s.exchange(ctx, p, c.send...), []contract.Kind{contract.InvalidArgument}, ""); wrong != nil {
			return fmt.Errorf("a stream with %s %w", c.what, wrong)
		}
		return s.works(ctx, p)
	})
}

// long is the start of a request that goes on for as long as the context lasts.
func (s *subject) long() *cladev1.GenerateRequest {
	return startOf(s.start(func(g *cladev1.GenerateStart) { g.MaxTokens = proto.Uint32(math.MaxUint32) }))
}

// works asks for a short answer: what came before must not have spoilt the process.
func (s *subject) works(ctx context.Context, p *process) error {
	want, err := s.straight(ctx, p, usualPrompt, 0)
	if err != nil {
		return err
	}
	got, err := s.generate(ctx, p, ask{ids: s.prompt(usualPrompt, 0)})
	if err != nil {
		return fmt.Errorf("the next request: %w", err)
	}
	return s.equal("the next request", want.ids, got.ids)
}

func (s *subject) checkGenerateUnknown(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	start := spoilt(startOf(s.start(func(g *cladev1.GenerateStart) { sampling(g) })), func(m *cladev1.GenerateRequest) proto.Message { return m.GetStart().Sampling })
	if err := unknownRefused("GenerateStart.sampling", s.exchange(ctx, p, start, idsOf(s.prompt(4, 0)...), promptEnd())); err != nil {
		return err
	}
	late := spoilt(control(&cladev1.Control{}), func(m *cladev1.GenerateRequest) proto.Message { return m.GetControl() })
	if err := unknownRefused("Control", s.exchange(ctx, p, s.long(), idsOf(s.prompt(4, 0)...), promptEnd(), late)); err != nil {
		return err
	}
	return s.works(ctx, p)
}

func (s *subject) checkPromptLimits(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	vocab, context := int32(s.facts.VocabSize), int(s.facts.ContextLength)
	invalid, long := contract.InvalidArgument, contract.ContextTooLong
	cases := []struct {
		what  string
		ids   []int32
		kinds []contract.Kind
	}{
		{"no ids", nil, []contract.Kind{invalid}},
		{"the id -1", []int32{1, -1}, []contract.Kind{invalid}},
		{fmt.Sprintf("the id %d of a vocabulary of %d", vocab, vocab), []int32{vocab, 1}, []contract.Kind{invalid}},
		{"as many ids as the context has", s.prompt(context, 0), []contract.Kind{long}},
		{"more ids than the context has", s.prompt(context+1, 0), []contract.Kind{long}},
	}
	err = each(cases, func(c struct {
		what  string
		ids   []int32
		kinds []contract.Kind
	},
	) error {
		_, err := s.generate(ctx, p, ask{ids: c.ids})
		if wrong := refusal(err, c.kinds, ""); wrong != nil {
			return fmt.Errorf("a prompt of %s %w", c.what, wrong)
		}
		return s.works(ctx, p)
	})
	if err != nil {
		return err
	}
	a, err := s.generate(ctx, p, ask{ids: s.prompt(context-1, 0)})
	if err != nil {
		return fmt.Errorf("a prompt that leaves one place: %w", err)
	}
	if len(a.ids) > 1 {
		return fmt.Errorf("a prompt that leaves one place got %d tokens", len(a.ids))
	}
	return nil
}

func (s *subject) checkCancel(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	rounds := int(s.spec.Composition.GetRows()) + 2 // more than there are places
	for range rounds {
		if err := s.cancelOne(ctx, p); err != nil {
			return err
		}
	}
	// By the stream's end, before the prompt's end, and in the middle of a prompt.
	for _, messages := range [][]*cladev1.GenerateRequest{
		{s.long(), idsOf(s.prompt(usualPrompt, 0)...), promptEnd()},
		{s.long(), idsOf(s.prompt(usualPrompt, 0)...)},
	} {
		inner, cancel := context.WithCancel(ctx)
		stream, err := p.rpc.Generate(inner)
		for _, m := range messages {
			if err == nil {
				err = stream.Send(m)
			}
		}
		cancel()
		if err != nil {
			return contract.FromStatus(err)
		}
	}
	if err := s.idle(ctx, p); err != nil {
		return err
	}
	return s.works(ctx, p)
}

// cancelOne cancels a long request behind its second token.
func (s *subject) cancelOne(ctx context.Context, p *process) error {
	var at time.Time
	a, err := s.generate(ctx, p, ask{
		ids:   s.prompt(usualPrompt, 1),
		start: func(g *cladev1.GenerateStart) { g.MaxTokens = proto.Uint32(math.MaxUint32) },
		on: func(tokens int, send func(*cladev1.Control) error) error {
			if tokens < 2 || !at.IsZero() {
				return nil
			}
			at = time.Now()
			return send(&cladev1.Control{Action: &cladev1.Control_Cancel{Cancel: true}})
		},
	})
	if err == nil && a.finish.GetReason() == cladev1.FinishReason_FINISH_REASON_LENGTH && a.endAt.Sub(at) < s.limits.cancel {
		return nil // it was complete before the cancel came
	}
	if wrong := refusal(err, []contract.Kind{contract.Cancelled}, ""); wrong != nil {
		if err == nil {
			return fmt.Errorf("a request that was cancelled behind its second token ran on for %d tokens and %s", len(a.ids), a.endAt.Sub(at).Round(time.Millisecond))
		}
		return fmt.Errorf("a cancelled request %w", wrong)
	}
	if took := a.endAt.Sub(at); took > s.limits.cancel {
		return fmt.Errorf("a cancelled request ended after %s; %s is the limit", took.Round(time.Millisecond), s.limits.cancel)
	}
	return nil
}

// idle waits until Stats states no request.
func (s *subject) idle(ctx context.Context, p *process) error {
	var r *cladev1.StatsResponse
	for until := time.Now().Add(s.limits.cancel); ; {
		var err error
		if r, err = p.rpc.Stats(ctx, &cladev1.StatsRequest{}); err != nil {
			return fmt.Errorf("stats: %w", contract.FromStatus(err))
		}
		if r.ActiveRequests == 0 && r.QueuedRequests == 0 {
			return nil
		}
		if time.Now().After(until) {
			break
		}
		if p.ends(20 * time.Millisecond) {
			return p.alive()
		}
	}
	return fmt.Errorf("%d requests are active and %d queued %s after the last one ended: their places are lost", r.ActiveRequests, r.QueuedRequests, s.limits.cancel)
}

func (s *subject) checkStopAt(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	want, err := s.straight(ctx, p, usualPrompt, 0)
	if err != nil {
		return err
	}
	const last = 2
	if len(want.ids) < last+2 {
		return undeclared("answers of this model end earlier than token %d", last)
	}
	a, err := s.generate(ctx, p, ask{
		ids: s.prompt(usualPrompt, 0), early: &cladev1.Control{Action: &cladev1.Control_StopAt{StopAt: last}},
		start: func(g *cladev1.GenerateStart) { g.MaxTokens = proto.Uint32(math.MaxUint32) },
	})
	switch {
	case err != nil:
		return err
	case a.finish.Reason != cladev1.FinishReason_FINISH_REASON_STOP:
		return fmt.Errorf("stop_at %d: finish reason is %s, STOP is due", last, a.finish.Reason)
	case a.finish.Usage.GeneratedTokens != last+1:
		return fmt.Errorf("stop_at %d: usage states %d generated tokens, %d is due", last, a.finish.Usage.GeneratedTokens, last+1)
	case len(a.ids) < last+1:
		return fmt.Errorf("stop_at %d: only %d tokens came", last, len(a.ids))
	}
	return s.equal("stop_at: the tokens before it", want.ids[:last+1], a.ids[:last+1])
}
