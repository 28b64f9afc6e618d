package dense

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// guesser drafts what the answers say, now and then something else, nothing, too much, or ids that do not exist.
type guesser struct {
	answers []wish
	rng     *rand.Rand
	hostile bool // never anything right
}

func (*guesser) Kind() string { return "test" }
func (*guesser) Close()       {}

func (*guesser) Expects(_ *engine.Text, _, most int) (tokens, class int) { return most, 0 }

func (g *guesser) Propose(_ *mlx.Scope, r *engine.Round) error {
	for _, a := range r.Asks {
		ids := a.IDs()
		for _, w := range g.answers {
			n := len(ids) - len(w.prompt)
			if n < 0 || n > len(w.want) || !slices.Equal(ids, append(slices.Clone(w.prompt), w.want[:n]...)) {
				continue
			}
			a.Drafts = slices.Clone(w.want[n:])
			break
		}
		for i := range a.Drafts {
			switch {
			case g.hostile:
				a.Drafts[i] = (a.Drafts[i] + 1 + int32(i)) % 256
			case g.rng.IntN(6) == 0:
				a.Drafts[i] = int32(g.rng.IntN(300)) - 20
			}
		}
	}
	return nil
}

func openDrafting(t *testing.T, s engine.Speculation, config engine.Config) *engine.Engine {
	t.Helper()
	config.Speculation = s
	if config.PrefillChunk == 0 {
		config.PrefillChunk = 64
	}
	if config.Queue == 0 {
		config.Queue = 64
	}
	return openConfig(t, tinyPaths[testModel], config)
}

// A draft that is always right is always taken: k+1 tokens a forward, and the figures say so.
func TestRightDraftsAreAccepted(t *testing.T) {
	all := wishes(t, 1)
	start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(61)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true), Temperature: ptr(1.2), Seed: ptr(uint64(5))}}
	all[0].start = start
	all[0].want = generate(t, open(t, tinyPaths[testModel], mlx.Float32, 64), all[0].prompt, start).ids
	e := openDrafting(t, engine.Speculation{Drafter: &honest{all}, Depth: 4, Always: true}, engine.Config{})
	got := generate(t, e, all[0].prompt, start)
	require.Equal(t, all[0].want, got.ids)
	u := got.finish.Usage
	require.EqualValues(t, 48, u.Drafted)
	require.Equal(t, u.Drafted, u.Accepted)
	require.EqualValues(t, 13, u.TargetCalls, "one token of the prompt's forward, then five a forward")
	require.EqualValues(t, 48, e.Stats().DraftedTokens)
	require.EqualValues(t, 48, e.Stats().AcceptedTokens)
}

// honest drafts the answers.
type honest struct{ answers []wish }

func (*honest) Kind() string                                            { return "test" }
func (*honest) Close()                                                  {}
func (*honest) Expects(_ *engine.Text, _, most int) (tokens, class int) { return most, 0 }

func (h *honest) Propose(_ *mlx.Scope, r *engine.Round) error {
	for _, a := range r.Asks {
		w := h.answers[0]
		a.Drafts = w.want[len(a.IDs())-len(w.prompt):]
	}
	return nil
}

// Whatever is proposed, and however often it is wrong, the tokens are those of plain decoding.
func TestWrongDraftsChangeNoToken(t *testing.T) {
	all := wishes(t, 24)
	e := openDrafting(t, engine.Speculation{Drafter: &guesser{answers: all, hostile: true}, Depth: 6, Always: true}, engine.Config{Rows: 8, PrefixBytes: 1 << 30})
	for range 2 { // the second time from what the first one kept
		ids, errs := askAll(e, all)
		for i, w := range all {
			require.NoError(t, errs[i])
			require.Equal(t, w.want, ids[i], "request %d", i)
		}
	}
	require.Positive(t, e.Stats().DraftedTokens)
	require.Zero(t, e.Stats().AcceptedTokens)
}

// slow is wrong and takes its time.
type slow struct {
	guesser
	asked int
}

func (d *slow) Propose(s *mlx.Scope, r *engine.Round) error {
	d.asked++
	time.Sleep(20 * time.Millisecond)
	return d.guesser.Propose(s, r)
}

// What loses is parked after the one trial that is granted, for the next request too, and the answer says why.
func TestADraftThatLosesIsParked(t *testing.T) {
	all := wishes(t, 1)
	all[0].start = &cladev1.GenerateStart{MaxTokens: ptr(uint32(200)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true), Temperature: ptr(1.2), Seed: ptr(uint64(5))}}
	all[0].want = generate(t, open(t, tinyPaths[testModel], mlx.Float32, 64), all[0].prompt, all[0].start).ids
	d := &slow{guesser: guesser{answers: all, hostile: true}}
	e := openDrafting(t, engine.Speculation{Drafter: d, Depth: 4}, engine.Config{})
	for range 3 {
		got := generate(t, e, all[0].prompt, all[0].start)
		require.Equal(t, all[0].want, got.ids)
		require.NotEmpty(t, got.finish.Usage.DraftParked)
	}
	require.Positive(t, d.asked)
	require.LessOrEqual(t, d.asked, 2)
	require.NotEmpty(t, e.Stats().DraftParked)
	require.Equal(t, "test", e.Stats().DraftKind, "it has not failed")
}

// Log probabilities, stops, limits and the host's last word end an answer where they end it without drafts.
func TestAnswersEndBehindDraftsAsWithout(t *testing.T) {
	plain := open(t, tinyPaths[testModel], mlx.Float32, 64)
	prompt := tiny.Prompt(30, 256)
	long := generate(t, plain, prompt, &cladev1.GenerateStart{MaxTokens: ptr(uint32(40)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}})
	know := []wish{{prompt: prompt, want: long.ids}}
	drafting := openDrafting(t, engine.Speculation{Drafter: &honest{know}, Depth: 7, Always: true}, engine.Config{PrefixBytes: 1 << 30})
	for name, start := range map[string]*cladev1.GenerateStart{
		"a stop among the drafts": {StopTokenIds: []int32{long.ids[17]}},
		"a limit among them":      {MaxTokens: ptr(uint32(11))},
		"log probabilities":       {MaxTokens: ptr(uint32(20)), Logprobs: &cladev1.Logprobs{Top: 3}},
		"no stop before its time": {MaxTokens: ptr(uint32(30)), StopTokenIds: []int32{long.ids[9]}, Sampling: &cladev1.Sampling{MinTokens: ptr(uint32(8)), IgnoreEos: ptr(true)}},
	} {
		t.Run(name, func(t *testing.T) {
			if start.Sampling == nil {
				start.Sampling = &cladev1.Sampling{IgnoreEos: ptr(true)}
			}
			want, got := generate(t, plain, prompt, start), generate(t, drafting, prompt, start)
			require.Equal(t, want.ids, got.ids)
			require.Equal(t, want.finish.Reason, got.finish.Reason)
			require.Equal(t, want.finish.Usage.GeneratedTokens, got.finish.Usage.GeneratedTokens)
			require.Len(t, got.logprobs, len(want.logprobs))
			for i := range want.logprobs {
				require.Equal(t, want.logprobs[i].String(), got.logprobs[i].String())
			}
			require.Positive(t, got.finish.Usage.Drafted)
		})
	}
}

// broken fails, in one of the ways there are.
type broken struct {
	engine.Drafter
	fails func(s *mlx.Scope) error
}

func (b broken) Expects(_ *engine.Text, _, most int) (tokens, class int) { return most, 0 }
func (b broken) Propose(s *mlx.Scope, _ *engine.Round) error             { return b.fails(s) }

func TestADrafterThatFailsIsParkedAndNoRowFails(t *testing.T) {
	all := wishes(t, 12)
	for name, fails := range map[string]func(s *mlx.Scope) error{
		"with an error": func(*mlx.Scope) error { return errors.New("no") },
		"in its graph": func(s *mlx.Scope) error {
			return s.Eval(s.Add(mlx.FromSlice(s, []float32{1, 2}, 2), mlx.FromSlice(s, []float32{1, 2, 3}, 3)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			tried := 0
			e := openDrafting(t, engine.Speculation{Depth: 4, Always: true, Drafter: broken{engine.Ngram(), func(s *mlx.Scope) error {
				tried++
				return fails(s)
			}}}, engine.Config{Rows: 4})
			ids, errs := askAll(e, all)
			for i, w := range all {
				require.NoError(t, errs[i])
				require.Equal(t, w.want, ids[i])
			}
			require.Equal(t, 1, tried)
			require.Zero(t, e.Stats().FailedEvaluations)
		})
	}
}

// sometimes goes back: a constraint that drafts can be checked under.
type undoing struct{ evens }

func (c *undoing) Rollback(n int) error {
	c.committed, c.left = c.committed[:len(c.committed)-n], c.left+n
	return nil
}

func TestDraftsAreCheckedUnderAConstraint(t *testing.T) {
	open := func(s engine.Speculation, c func() engine.Constraint) *engine.Engine {
		return openDrafting(t, s, engine.Config{Constraints: func(*cladev1.Constraint) (engine.Constraint, error) { return c(), nil }})
	}
	w := wish{prompt: tiny.Prompt(9, 256), start: &cladev1.GenerateStart{MaxTokens: ptr(uint32(40)), Constraint: &cladev1.Constraint{}, Sampling: &cladev1.Sampling{
		Temperature: ptr(2.0), Seed: ptr(uint64(1)), IgnoreEos: ptr(true),
	}}}
	w.want = generate(t, open(engine.Speculation{}, func() engine.Constraint { return &evens{vocab: 256, left: 20} }), w.prompt, w.start).ids
	require.Len(t, w.want, 20)
	for _, drafter := range []engine.Drafter{&honest{[]wish{w}}, &guesser{answers: []wish{w}, rng: rand.New(rand.NewPCG(1, 1))}} {
		e := open(engine.Speculation{Drafter: drafter, Depth: 4, Always: true}, func() engine.Constraint { return &undoing{evens{vocab: 256, left: 20}} })
		got := generate(t, e, w.prompt, w.start)
		require.Equal(t, w.want, got.ids)
		require.Equal(t, cladev1.FinishReason_FINISH_REASON_CONSTRAINT, got.finish.Reason)
		require.Positive(t, got.finish.Usage.Accepted)
	}
	e := open(engine.Speculation{Drafter: &honest{[]wish{w}}, Depth: 4, Always: true}, func() engine.Constraint { return &evens{vocab: 256, left: 20} })
	got := generate(t, e, w.prompt, w.start)
	require.Equal(t, w.want, got.ids)
	require.Zero(t, got.finish.Usage.Drafted, "a constraint that cannot go back")
}

func TestARequestCanDoWithoutDrafts(t *testing.T) {
	w := wishes(t, 1)[0]
	w.start.MaxTokens = ptr(uint32(20))
	w.want = generate(t, open(t, tinyPaths[testModel], mlx.Float32, 64), w.prompt, w.start).ids
	e := openDrafting(t, engine.Speculation{Drafter: &honest{[]wish{w}}, Depth: 4, Always: true}, engine.Config{})
	ask := func(s *cladev1.Speculation) *cladev1.Usage {
		w.start.Speculation = s
		got := generate(t, e, w.prompt, w.start)
		require.Equal(t, w.want, got.ids)
		return got.finish.Usage
	}
	require.Zero(t, ask(&cladev1.Speculation{Enabled: ptr(false)}).Drafted)
	require.Zero(t, ask(&cladev1.Speculation{Depth: ptr(uint32(0))}).Drafted)
	require.EqualValues(t, 10, ask(&cladev1.Speculation{Depth: ptr(uint32(1))}).TargetCalls-1)
	require.EqualValues(t, 4, ask(&cladev1.Speculation{Enabled: ptr(true)}).TargetCalls-1)

	plain := open(t, tinyPaths[testModel], mlx.Float32, 64)
	err := plain.Generate(t.Context(), &plugin.GenerateJob{Start: &cladev1.GenerateStart{Speculation: &cladev1.Speculation{Enabled: ptr(true)}}, IDs: w.prompt},
		func(*cladev1.GenerateResponse) error { return nil })
	require.Equal(t, contract.UnsupportedOption, contract.KindOf(err))
	require.ErrorContains(t, err, "speculation.enabled: the model was opened without a draft")
}

// A model that drafts for itself is always right, sampled or not: its draws are the target's.
func TestAModelDraftsForItselfAndIsAlwaysRight(t *testing.T) {
	plain := open(t, tinyPaths[testModel], mlx.Float32, 64)
	e := openDrafting(t, engine.Speculation{Drafter: checkpointDraft{path: tinyPaths[testModel]}, Depth: 3, Always: true}, engine.Config{Rows: 4})
	for name, sampling := range map[string]*cladev1.Sampling{
		"greedy":   {},
		"sampled":  {Temperature: ptr(1.3), Seed: ptr(uint64(11)), TopP: ptr(0.95)},
		"punished": {Temperature: ptr(0.9), Seed: ptr(uint64(12)), Repetition: &cladev1.Penalty{Value: 1.4, Window: 30}, Frequency: &cladev1.Penalty{Value: 0.4}},
		"biased":   {LogitBias: map[int32]float64{3: 2, 4: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			sampling.IgnoreEos = ptr(true)
			start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(41)), Sampling: sampling, Choice: ptr(uint32(2))}
			for _, prompt := range [][]int32{tiny.Prompt(1, 256), tiny.Prompt(150, 256), tiny.Prompt(200, 256)} {
				want, got := generate(t, plain, prompt, start), generate(t, e, prompt, start)
				require.Equal(t, want.ids, got.ids)
				require.EqualValues(t, 30, got.finish.Usage.Drafted, name)
				require.EqualValues(t, 30, got.finish.Usage.Accepted, name)
			}
		})
	}
}

// Another model drafts for several rows at once: some drafts are taken, and no token changes.
func TestASmallerModelDraftsForManyRows(t *testing.T) {
	all := wishes(t, 24)
	for _, draft := range []string{"llama-affine8", "llama-sliding"} {
		e := openDrafting(t, engine.Speculation{Drafter: checkpointDraft{path: tinyPaths[draft]}, Depth: 4, Always: true}, engine.Config{Rows: 8, KVTokens: 1024, PrefixBytes: 1 << 30})
		for range 2 {
			ids, errs := askAll(e, all)
			for i, w := range all {
				require.NoError(t, errs[i])
				require.Equal(t, w.want, ids[i], "request %d", i)
			}
		}
		require.Positive(t, e.Stats().DraftedTokens)
		require.Less(t, e.Stats().AcceptedTokens, e.Stats().DraftedTokens)
		require.Zero(t, e.Stats().FailedEvaluations)
		require.Zero(t, e.Stats().KvTokensUsed)
	}
}

// openWith opens an engine with a drafter that needs the model.
func openWith(t *testing.T, s engine.Speculation, wrap func(engine.Model) engine.Model) *engine.Engine {
	t.Helper()
	k, err := openRuntime(t).Kernels()
	require.NoError(t, err)
	return openWrapped(t, tinyPaths[testModel], weights.Target{DType: mlx.Float32, Kernels: k}, engine.Config{PrefillChunk: 40, Rows: 4, Queue: 32, Speculation: s}, wrap)
}

// Windows, whose rings are written over, and both kinds of attention: what a rejected draft put there is gone.
func TestRejectedDraftsLeaveNothingInAWindow(t *testing.T) {
	start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(300)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true), Temperature: ptr(1.1), Seed: ptr(uint64(4))}}
	prompt := tiny.Prompt(180, 256)
	want := generate(t, open(t, tinyPaths["llama-sliding"], mlx.Float32, 64), prompt, start).ids
	know := []wish{{prompt: prompt, want: want}}
	e := openConfig(t, tinyPaths["llama-sliding"], engine.Config{PrefillChunk: 64, Queue: 4, Speculation: engine.Speculation{
		Drafter: &guesser{answers: know, rng: rand.New(rand.NewPCG(8, 8))}, Depth: 30, Always: true,
	}})
	got := generate(t, e, prompt, start)
	require.Equal(t, want, got.ids)
	require.Positive(t, got.finish.Usage.Accepted)
	require.Less(t, got.finish.Usage.Accepted, got.finish.Usage.Drafted)
}

// Drafts do not change how often a token comes: the second token of 2,000 answers, drafted by another model with the same noise and
// checked, comes as often as the model says of it behind every first one.
func TestDraftedTokensHaveTheirProbabilities(t *testing.T) {
	const draws, temperature, vocab = 2000, 1.3, 256
	e := openDrafting(t, engine.Speculation{Drafter: checkpointDraft{path: tinyPaths["llama-affine8"]}, Depth: 1, Always: true}, engine.Config{Rows: 32, Queue: draws, PrefixBytes: 1 << 20})
	prompt := tiny.Prompt(11, vocab)
	softmax := func(row []float32) []float64 {
		scaled := make([]float64, len(row))
		for i, v := range row {
			scaled[i] = float64(v) / temperature
		}
		return probabilities(scaled)
	}
	probs := make([]float64, vocab)
	var firsts []float64
	for id := range int32(vocab) {
		rows := logits(t, e, append(slices.Clone(prompt), id))
		if firsts == nil {
			firsts = softmax(rows[len(prompt)-1])
		}
		for next, p := range softmax(rows[len(prompt)]) {
			probs[next] += firsts[id] * p
		}
	}
	all := make([]wish, draws)
	for i := range all {
		all[i] = wish{prompt: prompt, start: &cladev1.GenerateStart{MaxTokens: ptr(uint32(3)), Choice: ptr(uint32(i % 4)), Sampling: &cladev1.Sampling{
			Temperature: ptr(temperature), Seed: ptr(uint64(i / 4)), IgnoreEos: ptr(true),
		}}}
	}
	ids, errs := askAll(e, all)
	seen := make([]float64, vocab)
	for i := range ids {
		require.NoError(t, errs[i])
		seen[ids[i][1]]++
	}
	stats := e.Stats()
	require.EqualValues(t, draws, stats.DraftedTokens)
	t.Logf("%d of %d drafts were accepted", stats.AcceptedTokens, stats.DraftedTokens)
	require.Positive(t, stats.AcceptedTokens)
	require.Less(t, stats.AcceptedTokens, stats.DraftedTokens)
	requireAsLikely(t, seen, probs, draws)
}
