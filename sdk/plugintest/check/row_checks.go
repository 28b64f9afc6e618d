package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func rowChecks() []check {
	return []check{
		{"batch", "a request's answer does not depend on the requests beside it", (*subject).checkBatch},
		{"batch-cancel", "a cancelled request changes nothing for its neighbours", (*subject).checkBatchCancel},
		{"resume", "a request that goes on in another process goes on with the same tokens", (*subject).checkResume},
		{"prefix-cache", "an answer from the prefix cache is the cold one", (*subject).checkPrefixCache},
		{"speculation", "drafts change no token, and are counted", (*subject).checkSpeculation},
		{"memory-returns", "requests leave no memory and no place behind", (*subject).checkMemoryReturns},
		{"heartbeat", "no stream is silent for long", (*subject).checkHeartbeat},
	}
}

// row is one of several requests at once.
type row struct {
	ids  []int32
	seed uint64 // 0: greedy
}

// rows are different in length and content; every second one is sampled.
func (s *subject) rows(n int) []row {
	var out []row
	for i := range n {
		r := row{ids: s.prompt(usualPrompt-7*(i%4), i)}
		if i%2 == 1 && s.needsOptions("sampling.temperature", "sampling.seed") == nil {
			r.seed = uint64(i)
		}
		out = append(out, r)
	}
	return out
}

// batchTokens makes the rows overlap for some time.
const batchTokens = 24

func (s *subject) askRow(r row) ask {
	return ask{ids: r.ids, start: func(g *cladev1.GenerateStart) {
		g.MaxTokens = proto.Uint32(batchTokens)
		if r.seed > 0 {
			sampling(g).Temperature, sampling(g).Seed = proto.Float64(1), proto.Uint64(r.seed)
		}
	}}
}

// together runs asks at once. The subject's own notes are not safe for that: each has its own copy.
func (s *subject) together(ctx context.Context, p *process, asks []ask) ([]*answer, []error) {
	answers, errs := make([]*answer, len(asks)), make([]error, len(asks))
	subjects := make([]subject, len(asks))
	var wg sync.WaitGroup
	for i := range asks {
		subjects[i] = *s
		subjects[i].serial += 1000 * (i + 1)
		wg.Go(func() { answers[i], errs[i] = subjects[i].generate(ctx, p, asks[i]) })
	}
	wg.Wait()
	for i := range subjects {
		if subjects[i].longest > s.longest {
			s.longest, s.where = subjects[i].longest, subjects[i].where
		}
	}
	return answers, errs
}

func (s *subject) checkBatch(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	// More requests than rows: the rest waits for a place.
	rows := s.rows(int(s.spec.Composition.GetRows()) + 3)
	want := make([]*answer, len(rows))
	for i, r := range rows {
		if want[i], err = s.generate(ctx, p, s.askRow(r)); err != nil {
			return err
		}
	}
	for range 3 {
		var asks []ask
		for _, r := range rows {
			asks = append(asks, s.askRow(r))
		}
		got, errs := s.together(ctx, p, asks)
		for i := range rows {
			var e *contract.Error
			if errors.As(errs[i], &e) && e.Kind == contract.Busy {
				continue // it may refuse what it has no place for
			}
			if errs[i] != nil {
				return fmt.Errorf("request %d of %d at once: %w", i, len(rows), errs[i])
			}
			if err := s.equal(fmt.Sprintf("request %d of %d at once answers otherwise than alone", i, len(rows)), want[i].ids, got[i].ids); err != nil {
				return err
			}
		}
	}
	return s.idle(ctx, p)
}

func (s *subject) checkBatchCancel(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	n := int(s.spec.Composition.GetRows())
	if n < 2 {
		return undeclared("one request runs at a time")
	}
	rows := s.rows(n)
	want, err := s.generate(ctx, p, s.askRow(rows[0]))
	if err != nil {
		return err
	}
	asks := []ask{s.askRow(rows[0])}
	for _, r := range rows[1:] {
		a := s.askRow(r)
		a.on = func(tokens int, send func(*cladev1.Control) error) error {
			if tokens == 3 {
				return send(&cladev1.Control{Action: &cladev1.Control_Cancel{Cancel: true}})
			}
			return nil
		}
		asks = append(asks, a)
	}
	got, errs := s.together(ctx, p, asks)
	if errs[0] != nil {
		return fmt.Errorf("the request that was not cancelled: %w", errs[0])
	}
	if err := s.equal("a request whose neighbours were cancelled", want.ids, got[0].ids); err != nil {
		return err
	}
	return s.idle(ctx, p)
}

func (s *subject) checkResume(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	if err := s.needsOptions("generated_prefix"); err != nil {
		return err
	}
	q, _, err := s.open(ctx, s.spec)
	if err != nil {
		return err
	}
	defer q.kill()
	plain := func(*cladev1.GenerateStart) {}
	cases := map[string]func(*cladev1.GenerateStart){"a greedy request": plain}
	if s.needsOptions("sampling.temperature", "sampling.seed") == nil {
		cases["a sampled request"] = func(g *cladev1.GenerateStart) {
			sampling(g).Temperature, sampling(g).Seed = proto.Float64(1.2), proto.Uint64(99)
		}
	}
	if s.declared["sampling.frequency"] {
		cases["a request with a penalty"] = func(g *cladev1.GenerateStart) { sampling(g).Frequency = &cladev1.Penalty{Value: 2, Window: 8} }
	}
	if s.declared["sampling.min_tokens"] {
		cases["a request with min_tokens"] = func(g *cladev1.GenerateStart) { sampling(g).MinTokens = proto.Uint32(usualTokens) }
	}
	var names []string
	for name := range cases {
		names = append(names, name)
	}
	slices.Sort(names)
	prompt := s.prompt(usualPrompt, 2)
	return each(names, func(name string) error {
		whole, err := s.generate(ctx, p, ask{ids: prompt, start: cases[name]})
		if err != nil {
			return err
		}
		for _, broken := range []int{1, len(whole.ids) / 2, len(whole.ids)} {
			rest, err := s.generate(ctx, q, ask{ids: slices.Concat(prompt, whole.ids[:broken]), start: func(g *cladev1.GenerateStart) {
				cases[name](g)
				g.GeneratedPrefix = proto.Uint32(uint32(len(prompt)))
			}})
			if err != nil {
				return fmt.Errorf("%s resumed behind token %d: %w", name, broken, err)
			}
			if err := s.equal(fmt.Sprintf("%s resumed behind token %d of %d", name, broken, len(whole.ids)), whole.ids[broken:], rest.ids); err != nil {
				return err
			}
			if rest.finish.Provenance != nil && !rest.finish.Provenance.Resumed {
				return fmt.Errorf("%s was resumed and its provenance does not say so", name)
			}
		}
		return nil
	})
}

func (s *subject) checkPrefixCache(ctx context.Context) error {
	if _, err := s.generating(ctx); err != nil {
		return err
	}
	if err := s.needsOptions("prefix_cache"); err != nil {
		return err
	}
	spec := proto.Clone(s.spec).(*cladev1.ModelSpec)
	if s.declared["prefix_cache_bytes"] {
		spec.Composition.PrefixCacheBytes = proto.Uint64(someCache)
	}
	p, _, err := s.open(ctx, spec)
	if err != nil {
		return err
	}
	defer p.kill()
	long := min(4*usualPrompt, int(s.facts.ContextLength)-2*usualTokens)
	base := s.prompt(long, 3)
	fork := slices.Concat(base[:long/2], s.prompt(long/4, 4))
	prompts := [][]int32{base, base, slices.Concat(base, s.prompt(5, 5)), fork, base[:long/2], base}
	reuse := func(on bool) func(*cladev1.GenerateStart) {
		return func(g *cladev1.GenerateStart) { g.PrefixCache = &on }
	}
	var cold []*answer
	for i, ids := range prompts {
		a, err := s.generate(ctx, p, ask{ids: ids, start: reuse(false)})
		if err != nil {
			return err
		}
		if a.finish.Usage.CachedTokens > 0 {
			return fmt.Errorf("prefix_cache false: usage states %d cached tokens of prompt %d", a.finish.Usage.CachedTokens, i)
		}
		cold = append(cold, a)
	}
	used := uint32(0)
	for i, ids := range prompts {
		a, err := s.generate(ctx, p, ask{ids: ids, start: reuse(true)})
		if err != nil {
			return err
		}
		if err := s.equal(fmt.Sprintf("prompt %d with %d cached tokens answers otherwise than cold", i, a.finish.Usage.CachedTokens), cold[i].ids, a.ids); err != nil {
			return err
		}
		used += a.finish.Usage.CachedTokens
	}
	if used == 0 {
		return errors.New("prefix_cache true: no prompt was read from the cache, not even the same one again")
	}
	return nil
}

func (s *subject) checkMemoryReturns(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	round := func() (*cladev1.StatsResponse, uint64, error) {
		for i := range 8 {
			if _, err := s.generate(ctx, p, ask{ids: s.prompt(usualPrompt+i, i)}); err != nil {
				return nil, 0, err
			}
		}
		if err := s.idle(ctx, p); err != nil {
			return nil, 0, err
		}
		r, err := p.rpc.Stats(ctx, &cladev1.StatsRequest{})
		now, _, _ := resident(p.cmd.Process.Pid)
		return r, now, contract.FromStatus(err)
	}
	before, rss, err := round()
	if err != nil {
		return err
	}
	after, rssAfter, err := round()
	if err != nil {
		return err
	}
	const slack = 1 << 20
	a, b := before.GetMemory().GetActiveBytes(), after.GetMemory().GetActiveBytes()
	switch {
	case b > a+slack:
		return fmt.Errorf("active memory grew from %d to %d bytes over 8 requests", a, b)
	case after.LiveArrays > before.LiveArrays+8:
		return fmt.Errorf("live arrays grew from %d to %d over 8 requests", before.LiveArrays, after.LiveArrays)
	case after.GeneratedTokens <= before.GeneratedTokens || after.PromptTokens <= before.PromptTokens:
		return errors.New("the counts of prompt and generated tokens do not advance")
	case rssAfter > rss+32*slack:
		return fmt.Errorf("the process grew from %d to %d bytes over 8 requests", rss, rssAfter)
	}
	if _, most, ok := resident(p.cmd.Process.Pid); ok && s.onCPU() && most > s.admitted() {
		return fmt.Errorf("the process held %d bytes at most, the plan is %d in all", most, s.planned.TotalBytes)
	}
	return nil
}

func (s *subject) checkHeartbeat(context.Context) error {
	if s.where == "" {
		return notRun("no stream was read")
	}
	if s.longest > s.limits.beat {
		return fmt.Errorf("%s was silent for %s; progress is due once a second", s.where, s.longest)
	}
	return nil
}

// checkSpeculation opens the model once more with drafts from the text itself, which need no other artifact.
func (s *subject) checkSpeculation(ctx context.Context) error {
	p, err := s.generating(ctx)
	if err != nil {
		return err
	}
	if err := s.needsOptions("draft.depth"); err != nil {
		return err
	}
	q, _, err := s.open(ctx, s.with(func(spec *cladev1.ModelSpec) {
		spec.Composition.Draft = &cladev1.Draft{Kind: "ngram", Depth: proto.Uint32(4)}
	}))
	if contract.KindOf(err) == contract.UnsupportedOption {
		return undeclared("it looks no drafts up in the text")
	}
	if err != nil {
		return err
	}
	defer q.kill()
	for i, r := range s.rows(4) {
		a := s.askRow(r)
		a.ids = slices.Concat(r.ids, r.ids[:len(r.ids)/2]) // something recurs
		want, err := s.generate(ctx, p, a)
		if err != nil {
			return err
		}
		got, err := s.generate(ctx, q, a)
		if err != nil {
			return err
		}
		if err := s.equal(fmt.Sprintf("request %d answers otherwise with drafts", i), want.ids, got.ids); err != nil {
			return err
		}
		u := got.finish.Usage
		if u.Accepted > u.Drafted || u.DraftRounds > u.Drafted {
			return fmt.Errorf("usage states %d tokens drafted in %d rounds, %d of them accepted", u.Drafted, u.DraftRounds, u.Accepted)
		}
		if s.declared["speculation.enabled"] {
			start := a.start
			a.start = func(g *cladev1.GenerateStart) {
				start(g)
				g.Speculation = &cladev1.Speculation{Enabled: proto.Bool(false)}
			}
			if got, err = s.generate(ctx, q, a); err != nil {
				return err
			}
			if got.finish.Usage.Drafted > 0 {
				return errors.New("speculation.enabled false: tokens were drafted")
			}
		}
	}
	return s.idle(ctx, q)
}
