package check

import (
	"context"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func optionChecks() []check {
	return []check{
		{"options-refused", "an option that it does not declare is refused by name", (*subject).checkOptionsRefused},
		{"option-values", "a value that means nothing is refused by name", (*subject).checkOptionValues},
		{"stops", "stop_token_ids, min_tokens and ignore_eos decide where an answer ends", (*subject).checkStops},
		{"sampling", "temperature, seed, choice and the filters sample as the contract says", (*subject).checkSampling},
		{"logit-bias", "logit_bias moves an id to the front", (*subject).checkBias},
		{"penalties", "penalties count what is in their window", (*subject).checkPenalties},
		{"logprobs", "log probabilities are of the tokens, sorted, and none is above 0", (*subject).checkLogprobs},
		{"constraints", "an answer is one that its grammar allows, also when it is resumed", (*subject).checkConstraints},
		{"composition", "max_generation, context, kernels, prefill_chunk and threads do what they say", (*subject).checkComposition},
	}
}

func (s *subject) checkOptionsRefused(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	err = each(leaves((&cladev1.GenerateStart{}).ProtoReflect().Descriptor(), nil), func(l leaf) error {
		if s.declared[l.path()] {
			return nil
		}
		start := s.start(func(g *cladev1.GenerateStart) { l.set(g.ProtoReflect()) })
		err := s.exchange(ctx, p, startOf(start), idsOf(s.prompt(4, 0)...), promptEnd())
		if wrong := l.refused(err); wrong != nil {
			return fmt.Errorf("%s is not declared and %w", l.path(), wrong)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !s.declared["media"] {
		media := &cladev1.GenerateRequest{Message: &cladev1.GenerateRequest_Media{Media: &cladev1.MediaChunk{
			Type: "image/rgb8", Width: 1, Height: 1, Data: []byte{1, 2, 3}, Last: true,
		}}}
		err := s.exchange(ctx, p, startOf(s.start(nil)), idsOf(s.prompt(4, 0)...), media, promptEnd())
		if wrong := refusal(err, []contract.Kind{contract.UnsupportedOption}, "media"); wrong != nil {
			return fmt.Errorf("media is not declared and %w", wrong)
		}
	}
	return s.works(ctx, p)
}

func (s *subject) checkOptionValues(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	vocab := int32(s.facts.VocabSize)
	cases := []struct {
		path, value string
		set         func(*cladev1.GenerateStart)
	}{
		{"sampling.temperature", "-1", func(g *cladev1.GenerateStart) { sampling(g).Temperature = proto.Float64(-1) }},
		{"sampling.temperature", "NaN", func(g *cladev1.GenerateStart) { sampling(g).Temperature = proto.Float64(math.NaN()) }},
		{"sampling.top_p", "0", func(g *cladev1.GenerateStart) { sampling(g).TopP = proto.Float64(0) }},
		{"sampling.top_p", "1.5", func(g *cladev1.GenerateStart) { sampling(g).TopP = proto.Float64(1.5) }},
		{"sampling.min_p", "2", func(g *cladev1.GenerateStart) { sampling(g).MinP = proto.Float64(2) }},
		{"sampling.repetition", "0", func(g *cladev1.GenerateStart) { sampling(g).Repetition = &cladev1.Penalty{} }},
		{"sampling.presence", "NaN", func(g *cladev1.GenerateStart) { sampling(g).Presence = &cladev1.Penalty{Value: math.NaN()} }},
		{"sampling.logit_bias", fmt.Sprintf("for id %d", vocab), func(g *cladev1.GenerateStart) { sampling(g).LogitBias = map[int32]float64{vocab: 1} }},
		{"stop_token_ids", fmt.Sprint(vocab), func(g *cladev1.GenerateStart) { g.StopTokenIds = []int32{vocab} }},
		{"generated_prefix", "beyond the ids", func(g *cladev1.GenerateStart) { g.GeneratedPrefix = proto.Uint32(5) }},
	}
	err = each(cases, func(c struct {
		path, value string
		set         func(*cladev1.GenerateStart)
	},
	) error {
		if !s.declared[c.path] {
			return nil
		}
		err := s.exchange(ctx, p, startOf(s.start(c.set)), idsOf(s.prompt(4, 0)...), promptEnd())
		if wrong := refusal(err, []contract.Kind{contract.InvalidArgument, contract.UnsupportedOption}, c.path); wrong != nil {
			return fmt.Errorf("%s %s %w", c.path, c.value, wrong)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.works(ctx, p)
}

func (s *subject) checkStops(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	want, err := s.straight(ctx, p, usualPrompt, 0)
	if err != nil {
		return err
	}
	// The first token that did not come before, so that it cannot stop earlier.
	at := 0
	for i, id := range want.ids {
		if !slices.Contains(want.ids[:i], id) {
			at = i
		}
		if at >= 3 {
			break
		}
	}
	stop := want.ids[at]
	a, err := s.generate(ctx, p, ask{ids: s.prompt(usualPrompt, 0), start: func(g *cladev1.GenerateStart) { g.StopTokenIds = []int32{stop} }})
	if err != nil {
		return err
	}
	if s.exact && (len(a.ids) != at || a.finish.Reason != cladev1.FinishReason_FINISH_REASON_STOP) {
		return fmt.Errorf("stop_token_ids [%d], which is token %d of the answer: %d tokens came and the finish reason is %s; it is not to be emitted, and STOP is due",
			stop, at, len(a.ids), a.finish.Reason)
	}
	if slices.Contains(a.ids, stop) {
		return fmt.Errorf("stop_token_ids [%d]: it was emitted", stop)
	}
	if s.declared["sampling.min_tokens"] {
		least := uint32(at + 2)
		b, err := s.generate(ctx, p, ask{ids: s.prompt(usualPrompt, 0), start: func(g *cladev1.GenerateStart) {
			g.StopTokenIds, sampling(g).MinTokens = []int32{stop}, &least
		}})
		if err != nil {
			return err
		}
		if len(b.ids) < int(least) || slices.Contains(b.ids[:least], stop) {
			return fmt.Errorf("sampling.min_tokens %d with a stop at token %d: %d tokens came", least, at, len(b.ids))
		}
	}
	return s.eos(ctx, p)
}

// eos holds the model's own end tokens to ignore_eos.
func (s *subject) eos(ctx context.Context, p *process) error {
	if len(s.facts.EosTokenIds) == 0 || s.needsOptions("sampling.logit_bias", "sampling.ignore_eos") != nil {
		return nil
	}
	end := s.facts.EosTokenIds[0]
	if uint32(end) >= s.facts.VocabSize {
		return nil
	}
	for _, ignore := range []bool{false, true} {
		a, err := s.generate(ctx, p, ask{ids: s.prompt(usualPrompt, 0), start: func(g *cladev1.GenerateStart) {
			sampling(g).IgnoreEos, sampling(g).LogitBias = &ignore, map[int32]float64{end: hugeBias}
		}})
		if err != nil {
			return err
		}
		if ignore != (len(a.ids) > 0) {
			return fmt.Errorf("sampling.ignore_eos %v with the end token %d forced by logit_bias: %d tokens came", ignore, end, len(a.ids))
		}
	}
	return nil
}

func (s *subject) checkComposition(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	want, err := s.straight(ctx, p, usualPrompt, 0)
	if err != nil {
		return err
	}
	same := func(q *process, facts *cladev1.ModelFacts, what string) error {
		got, err := s.generate(ctx, q, ask{ids: s.prompt(usualPrompt, 0)})
		if err != nil {
			return err
		}
		return s.equal(what, want.ids, got.ids)
	}
	cases := []struct {
		path, what string
		set        func(*cladev1.Composition)
		holds      func(*process, *cladev1.ModelFacts, string) error
	}{
		{"prefill_chunk", "composition.prefill_chunk 7", func(c *cladev1.Composition) { c.PrefillChunk = proto.Uint32(7) }, same},
		{"threads", "composition.threads 1", func(c *cladev1.Composition) { c.Threads = proto.Uint32(1) }, same},
		{"rows", "composition.rows 1", func(c *cladev1.Composition) { c.Rows = proto.Uint32(1) }, same},
		{"max_generation", "composition.max_generation 3", func(c *cladev1.Composition) { c.MaxGeneration = proto.Uint32(3) }, s.shortAnswer},
		{"context", "composition.context 48", func(c *cladev1.Composition) {
			c.Context = proto.Uint32(48)
			if c.MaxGeneration != nil {
				c.MaxGeneration = proto.Uint32(48)
			}
		}, s.shortContext},
		{"kernels", "composition.kernels off", func(c *cladev1.Composition) {
			c.Kernels = proto.String("off")
			if c.Deterministic != nil {
				c.Deterministic = proto.Bool(false)
			}
		}, s.noKernels},
	}
	return each(cases, func(c struct {
		path, what string
		set        func(*cladev1.Composition)
		holds      func(*process, *cladev1.ModelFacts, string) error
	},
	) error {
		if !s.declared[c.path] {
			return nil
		}
		q, facts, err := s.open(ctx, s.with(func(m *cladev1.ModelSpec) { c.set(m.Composition) }))
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		defer q.kill()
		if err := c.holds(q, facts, c.what); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		return nil
	})
}

func (s *subject) shortAnswer(q *process, _ *cladev1.ModelFacts, _ string) error {
	a, err := s.generate(context.Background(), q, ask{ids: s.prompt(usualPrompt, 0), short: true})
	if err == nil && len(a.ids) > 3 {
		err = fmt.Errorf("%d tokens came", len(a.ids))
	}
	return err
}

func (s *subject) shortContext(q *process, facts *cladev1.ModelFacts, _ string) error {
	if facts.ContextLength != 48 {
		return fmt.Errorf("the model's facts state a context of %d", facts.ContextLength)
	}
	_, err := s.generate(context.Background(), q, ask{ids: s.prompt(48, 0)})
	if wrong := refusal(err, []contract.Kind{contract.ContextTooLong}, ""); wrong != nil {
		return fmt.Errorf("a prompt of 48 ids %w", wrong)
	}
	return nil
}

func (s *subject) noKernels(_ *process, facts *cladev1.ModelFacts, _ string) error {
	if len(facts.Kernels) > 0 {
		return fmt.Errorf("the kernels %v run", facts.Kernels)
	}
	return nil
}
