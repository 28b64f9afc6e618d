package check

import (
	"context"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract/cladev1"
)

// hugeBias outweighs every logit; a second one of half its size comes next.
const hugeBias = 4000

// sampled asks with the usual temperature.
func (s *subject) sampled(ctx context.Context, p *process, seed uint64, edit func(*cladev1.GenerateStart)) ([]int32, error) {
	a, err := s.generate(ctx, p, ask{ids: s.prompt(usualPrompt, 0), start: func(g *cladev1.GenerateStart) {
		sampling(g).Temperature, sampling(g).Seed = proto.Float64(1.5), &seed
		if edit != nil {
			edit(g)
		}
	}})
	if err != nil {
		return nil, err
	}
	return a.ids, nil
}

func (s *subject) checkSampling(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	if err := s.needsOptions("sampling.temperature", "sampling.seed"); err != nil {
		return err
	}
	greedy, err := s.straight(ctx, p, usualPrompt, 0)
	if err != nil {
		return err
	}
	one, err := s.sampled(ctx, p, 7, nil)
	if err != nil {
		return err
	}
	again, err := s.sampled(ctx, p, 7, nil)
	if err != nil {
		return err
	}
	if err := s.equal("the same sampling.seed at temperature 1.5", one, again); err != nil {
		return err
	}
	variants := map[string]func(*cladev1.GenerateStart){"sampling.seed": func(g *cladev1.GenerateStart) { sampling(g).Seed = proto.Uint64(1 << 40) }}
	if s.declared["choice"] {
		variants["choice"] = func(g *cladev1.GenerateStart) { g.Choice = proto.Uint32(1) }
	}
	for path, edit := range variants {
		other, err := s.sampled(ctx, p, 7, edit)
		if err != nil {
			return err
		}
		if slices.Equal(one, other) {
			return fmt.Errorf("another %s gives the same %d tokens at temperature 1.5", path, len(one))
		}
	}
	for path, edit := range map[string]func(*cladev1.GenerateStart){
		"sampling.top_k":       func(g *cladev1.GenerateStart) { sampling(g).TopK = proto.Uint32(1) },
		"sampling.top_p":       func(g *cladev1.GenerateStart) { sampling(g).TopP = proto.Float64(1e-6) },
		"sampling.min_p":       func(g *cladev1.GenerateStart) { sampling(g).MinP = proto.Float64(1) },
		"sampling.temperature": func(g *cladev1.GenerateStart) { sampling(g).Temperature = proto.Float64(0) },
	} {
		if !s.declared[path] {
			continue
		}
		got, err := s.sampled(ctx, p, 7, edit)
		if err != nil {
			return err
		}
		if err := s.equal(path+" that leaves one token only: the greedy answer is due", greedy.ids, got); err != nil {
			return err
		}
	}
	return nil
}

// forced is two ids of the vocabulary that are not in the prompt and end nothing.
func (s *subject) forced() (a, b int32) {
	used := append(s.prompt(usualPrompt, 0), s.facts.EosTokenIds...)
	var out []int32
	for id := int32(s.facts.VocabSize) - 1; id >= 0 && len(out) < 2; id-- {
		if !slices.Contains(used, id) {
			out = append(out, id)
		}
	}
	if len(out) < 2 {
		return 0, 0
	}
	return out[0], out[1]
}

// biased asks greedily with a ahead of b, and b ahead of all others.
func (s *subject) biased(ctx context.Context, p *process, edit func(*cladev1.Sampling)) ([]int32, error) {
	a, b := s.forced()
	got, err := s.generate(ctx, p, ask{ids: s.prompt(usualPrompt, 0), start: func(g *cladev1.GenerateStart) {
		g.MaxTokens = proto.Uint32(5)
		in := sampling(g)
		in.LogitBias = map[int32]float64{a: hugeBias, b: hugeBias / 2}
		if edit != nil {
			edit(in)
		}
	}})
	if err != nil {
		return nil, err
	}
	return got.ids, nil
}

func (s *subject) checkBias(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	if err := s.needsOptions("sampling.logit_bias"); err != nil {
		return err
	}
	got, err := s.biased(ctx, p, nil)
	if err != nil {
		return err
	}
	a, _ := s.forced()
	if !slices.Equal(got, []int32{a, a, a, a, a}) {
		return fmt.Errorf("sampling.logit_bias of %d for id %d: the greedy answer is %v, that id alone is due", hugeBias, a, got)
	}
	return nil
}

func (s *subject) checkPenalties(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	if err := s.needsOptions("sampling.logit_bias"); err != nil {
		return err
	}
	a, b := s.forced()
	penalty := func(value float64, window uint32) *cladev1.Penalty {
		return &cladev1.Penalty{Value: value, Window: window}
	}
	cases := []struct {
		path, what string
		set        func(*cladev1.Sampling)
		want       []int32 // a prefix of the answer
		repeats    bool    // may a and b come again behind it
	}{
		// a is 4000 ahead and b 2000: what subtracts 10000 once, or 3000 each time, or divides by 1000 shows in their order.
		{"sampling.presence", "10000", func(in *cladev1.Sampling) { in.Presence = penalty(10000, 0) }, []int32{a, b}, false},
		{"sampling.presence", "10000 in a window of 1", func(in *cladev1.Sampling) { in.Presence = penalty(10000, 1) }, []int32{a, b, a, b, a}, true},
		{"sampling.frequency", "1500", func(in *cladev1.Sampling) { in.Frequency = penalty(1500, 0) }, []int32{a, a, b, a}, true},
		{"sampling.frequency", "10000 in a window of 1", func(in *cladev1.Sampling) { in.Frequency = penalty(10000, 1) }, []int32{a, b, a, b, a}, true},
		{"sampling.repetition", "1000", func(in *cladev1.Sampling) { in.Repetition = penalty(1000, 0) }, []int32{a, b}, true},
		{"sampling.repetition", "1000 in a window of 1", func(in *cladev1.Sampling) { in.Repetition = penalty(1000, 1) }, []int32{a, b, a, b, a}, true},
	}
	tested := false
	err = each(cases, func(c struct {
		path, what string
		set        func(*cladev1.Sampling)
		want       []int32
		repeats    bool
	},
	) error {
		if !s.declared[c.path] {
			return nil
		}
		tested = true
		got, err := s.biased(ctx, p, c.set)
		if err != nil {
			return err
		}
		if len(got) < len(c.want) || !slices.Equal(got[:len(c.want)], c.want) {
			return fmt.Errorf("%s %s with ids %d and %d biased by 4000 and 2000: the answer is %v, it begins with %v if honoured", c.path, c.what, a, b, got, c.want)
		}
		if rest := got[len(c.want):]; !c.repeats && (slices.Contains(rest, a) || slices.Contains(rest, b)) {
			return fmt.Errorf("%s %s: the answer %v repeats a token", c.path, c.what, got)
		}
		return nil
	})
	if err == nil && !tested {
		return undeclared("no penalty")
	}
	return err
}

func (s *subject) checkLogprobs(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	if err := s.needsOptions("logprobs"); err != nil {
		return err
	}
	const top = 5
	a, err := s.generate(ctx, p, ask{ids: s.prompt(usualPrompt, 0), start: func(g *cladev1.GenerateStart) { g.Logprobs = &cladev1.Logprobs{Top: top} }})
	if err != nil {
		return err
	}
	for i, l := range a.logprobs {
		var sum float64
		for j, t := range l.Top {
			sum += math.Exp(float64(t.Logprob))
			if j > 0 && t.Logprob > l.Top[j-1].Logprob {
				return fmt.Errorf("token %d: its alternatives are not sorted", i)
			}
		}
		switch {
		case l.Id != a.ids[i]:
			return fmt.Errorf("token %d is %d, its log probability is of %d", i, a.ids[i], l.Id)
		case l.Logprob > 1e-4 || math.IsNaN(float64(l.Logprob)):
			return fmt.Errorf("token %d has log probability %g: none is above 0", i, l.Logprob)
		case len(l.Top) != min(top, int(s.facts.VocabSize)):
			return fmt.Errorf("token %d has %d alternatives, %d were asked for", i, len(l.Top), top)
		case math.Abs(float64(l.Logprob-l.Top[0].Logprob)) > 1e-3:
			return fmt.Errorf("token %d was sampled greedily with log probability %g, the best is %g", i, l.Logprob, l.Top[0].Logprob)
		case sum > 1+1e-3:
			return fmt.Errorf("token %d: its %d best have the probability %g together", i, len(l.Top), sum)
		}
	}
	want, err := s.straight(ctx, p, usualPrompt, 0)
	if err != nil {
		return err
	}
	return s.equal("the answer with logprobs", want.ids, a.ids)
}
