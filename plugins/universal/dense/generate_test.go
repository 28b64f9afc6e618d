package dense

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

const testModel = "llama-untied-headdim"

func TestEverySamplingOptionPicksWhatTheReferencePicks(t *testing.T) {
	e := open(t, tinyPaths[testModel], mlx.Float32, 256)
	penalty := func(v float64, window uint32) *cladev1.Penalty { return &cladev1.Penalty{Value: v, Window: window} }
	tests := map[string]*cladev1.Sampling{
		"greedy":               {},
		"temperature":          {Temperature: ptr(0.8), Seed: ptr(uint64(7))},
		"hot":                  {Temperature: ptr(3.0), Seed: ptr(uint64(1 << 40))},
		"top p":                {Temperature: ptr(1.5), TopP: ptr(0.6), Seed: ptr(uint64(1))},
		"tiny top p is greedy": {Temperature: ptr(1.5), TopP: ptr(1e-6), Seed: ptr(uint64(1))},
		"min p":                {Temperature: ptr(2.0), MinP: ptr(0.2), Seed: ptr(uint64(2))},
		"top k":                {Temperature: ptr(2.0), TopK: ptr(uint32(5)), Seed: ptr(uint64(3))},
		"all filters":          {Temperature: ptr(1.2), TopP: ptr(0.9), MinP: ptr(0.05), TopK: ptr(uint32(20)), Seed: ptr(uint64(4))},
		"typical":              {Temperature: ptr(1.5), TypicalP: ptr(0.4), Seed: ptr(uint64(8))},
		"xtc":                  {Temperature: ptr(1.0), XtcProbability: ptr(1.0), XtcThreshold: ptr(0.004), Seed: ptr(uint64(9))},
		"typical, xtc, rest":   {Temperature: ptr(1.1), TopP: ptr(0.95), TypicalP: ptr(0.8), XtcProbability: ptr(1.0), XtcThreshold: ptr(0.01), TopK: ptr(uint32(30)), Seed: ptr(uint64(10))},
		"top k beyond vocab":   {Temperature: ptr(1.0), TopK: ptr(uint32(100000)), Seed: ptr(uint64(5))},
		"repetition":           {Repetition: penalty(1.3, 0)},
		"repetition, window":   {Repetition: penalty(2, 4)},
		"presence":             {Presence: penalty(0.7, 0)},
		"frequency":            {Frequency: penalty(0.3, 0)},
		"frequency, window 1":  {Frequency: penalty(1.5, 1)},
		"bias":                 {LogitBias: map[int32]float64{3: 1.5, 200: -4}},
		"all": {
			Temperature: ptr(0.9), TopP: ptr(0.95), Seed: ptr(uint64(6)), Repetition: penalty(1.1, 20),
			Presence: penalty(0.2, 20), Frequency: penalty(0.1, 0), LogitBias: map[int32]float64{9: 2},
		},
	}
	for name, sampling := range tests {
		t.Run(name, func(t *testing.T) {
			const count = 24
			sampling.IgnoreEos = ptr(true)
			prompt := tiny.Prompt(9, 256)
			got := generate(t, e, prompt, &cladev1.GenerateStart{MaxTokens: ptr(uint32(count)), Sampling: sampling})
			history := append([]int32(nil), prompt...)
			for n := range count {
				rows := logits(t, e, history)
				want := referencePick(rows[len(rows)-1], history, sampling, len(history))
				require.Equal(t, want, got.ids[n], "token %d of %v", n, got.ids)
				history = append(history, want)
			}
		})
	}
}

func TestRandomCombinationsPickWhatTheReferencePicks(t *testing.T) {
	const rounds, count = 24, 4
	bothWays(t, func(t *testing.T, kernels *mlx.Kernels) {
		e := openOn(t, tinyPaths[testModel], weights.Target{DType: mlx.Float32, Kernels: kernels}, 256)
		for round := range rounds {
			r := rand.New(rand.NewPCG(11, uint64(round)))
			sampling := drawnSampling(r)
			prompt := tiny.Prompt(5+round, 256)
			got := generate(t, e, prompt, &cladev1.GenerateStart{MaxTokens: ptr(uint32(count)), Sampling: sampling}).ids
			rows := logits(t, e, append(slices.Clone(prompt), got...))
			history := slices.Clone(prompt)
			for n, id := range got {
				require.Equal(t, referencePick(rows[len(history)-1], history, sampling, len(history)), id, "round %d, token %d: %v", round, n, sampling)
				history = append(history, id)
			}
			require.Len(t, got, count)
		}
	})
}

// drawnSampling has each option with a chance of one half.
func drawnSampling(r *rand.Rand) *cladev1.Sampling {
	out := &cladev1.Sampling{IgnoreEos: ptr(true), Seed: ptr(r.Uint64())}
	half := func() bool { return r.IntN(2) == 0 }
	between := func(lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }
	for _, one := range []struct {
		to     **float64
		lo, hi float64
	}{{&out.TopP, 0.3, 0.999}, {&out.MinP, 0.001, 0.5}, {&out.TypicalP, 0.3, 0.999}, {&out.XtcThreshold, 0.001, 0.1}} {
		if half() {
			*one.to = ptr(between(one.lo, one.hi))
		}
	}
	if out.XtcThreshold != nil {
		out.XtcProbability = ptr(1.0)
	}
	if half() {
		out.TopK = ptr(uint32(1 + r.IntN(60)))
	}
	if r.IntN(4) > 0 {
		out.Temperature = ptr(between(0.2, 2.5))
	}
	for _, one := range []struct {
		to     **cladev1.Penalty
		lo, hi float64
	}{{&out.Repetition, 0.8, 1.6}, {&out.Presence, -0.5, 1}, {&out.Frequency, -0.5, 1}} {
		if half() {
			*one.to = &cladev1.Penalty{Value: between(one.lo, one.hi), Window: uint32(r.IntN(12))}
		}
	}
	if half() {
		out.LogitBias = map[int32]float64{int32(r.IntN(256)): between(-4, 4), int32(r.IntN(256)): between(-4, 4)}
	}
	return out
}

func TestASampledStreamResumesWithTheSameTokens(t *testing.T) {
	e := open(t, tinyPaths[testModel], mlx.Float32, 256)
	start := func(n int) *cladev1.GenerateStart {
		return &cladev1.GenerateStart{MaxTokens: ptr(uint32(n)), Choice: ptr(uint32(1)), Sampling: &cladev1.Sampling{
			Temperature: ptr(1.5), Seed: ptr(uint64(99)), IgnoreEos: ptr(true),
		}}
	}
	prompt := tiny.Prompt(20, 256)
	whole := generate(t, e, prompt, start(40)).ids
	for _, cut := range []int{1, 13, 39, 40} {
		again := start(40)
		again.GeneratedPrefix = ptr(uint32(len(prompt)))
		rest := generate(t, e, append(append([]int32(nil), prompt...), whole[:cut]...), again)
		require.Equal(t, whole[cut:], append([]int32{}, rest.ids...), "after %d tokens", cut)
		require.EqualValues(t, 40, rest.finish.Usage.GeneratedTokens, "usage counts from the prompt's end")
		require.EqualValues(t, 20, rest.finish.Usage.PromptTokens)
		require.True(t, rest.finish.Provenance.Resumed)
	}
	other := start(40)
	other.Choice = ptr(uint32(2))
	require.NotEqual(t, whole, generate(t, e, prompt, other).ids, "another choice is another stream")
}

func TestTokensDoNotDependOnThePrefillChunk(t *testing.T) {
	start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(20)), Sampling: &cladev1.Sampling{Temperature: ptr(1.0), Seed: ptr(uint64(5)), IgnoreEos: ptr(true)}}
	prompt := tiny.Prompt(300, 256)
	want := generate(t, open(t, tinyPaths["llama-sliding"], mlx.Float32, 256), prompt, start).ids
	for _, chunk := range []int{1, 5, 64} {
		require.Equal(t, want, generate(t, open(t, tinyPaths["llama-sliding"], mlx.Float32, chunk), prompt, start).ids)
	}
}

func TestADrawnSeedIsReported(t *testing.T) {
	e := open(t, tinyPaths[testModel], mlx.Float32, 256)
	sampling := &cladev1.Sampling{Temperature: ptr(1.0), IgnoreEos: ptr(true)}
	start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(12)), Sampling: sampling}
	first := generate(t, e, tiny.Prompt(5, 256), start)
	require.NotNil(t, first.finish.Provenance.Seed)
	sampling.Seed = first.finish.Provenance.Seed
	require.Equal(t, first.ids, generate(t, e, tiny.Prompt(5, 256), start).ids)
}

func TestStopsEndAGeneration(t *testing.T) {
	e := open(t, tinyPaths[testModel], mlx.Float32, 256)
	prompt := tiny.Prompt(7, 256)
	free := generate(t, e, prompt, &cladev1.GenerateStart{MaxTokens: ptr(uint32(12)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}}).ids
	require.NotContains(t, free[:2], free[2])

	start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(12)), StopTokenIds: []int32{free[2]}}
	stopped := generate(t, e, prompt, start)
	require.Equal(t, free[:2], stopped.ids, "the stop id is not emitted")
	require.Equal(t, cladev1.FinishReason_FINISH_REASON_STOP, stopped.finish.Reason)
	require.EqualValues(t, 2, stopped.finish.Usage.GeneratedTokens)
	require.EqualValues(t, 7, stopped.finish.Usage.PromptTokens)

	start.Sampling = &cladev1.Sampling{MinTokens: ptr(uint32(5))}
	later := generate(t, e, prompt, start)
	require.GreaterOrEqual(t, len(later.ids), 5)
	require.NotContains(t, later.ids, free[2])
}

func TestTheHostStopsAtAToken(t *testing.T) {
	e := open(t, tinyPaths[testModel], mlx.Float32, 256)
	control := make(chan *cladev1.Control, 1)
	job := &plugin.GenerateJob{
		Start: &cladev1.GenerateStart{MaxTokens: ptr(uint32(100)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}},
		IDs:   tiny.Prompt(7, 256), Control: control,
	}
	emitted := 0
	var finish *cladev1.Finish
	require.NoError(t, e.Generate(context.Background(), job, func(r *cladev1.GenerateResponse) error {
		emitted += len(r.GetStep().GetIds())
		if emitted == 3 && len(control) == 0 {
			control <- &cladev1.Control{Action: &cladev1.Control_StopAt{StopAt: 5}}
		}
		if f := r.GetFinish(); f != nil {
			finish = f
		}
		return nil
	}))
	require.Equal(t, 6, emitted)
	require.Equal(t, cladev1.FinishReason_FINISH_REASON_STOP, finish.Reason)
	require.EqualValues(t, 6, finish.Usage.GeneratedTokens)
}

func TestLogprobsAreTheLogSoftmaxOfTheLogits(t *testing.T) {
	e := open(t, tinyPaths[testModel], mlx.Float32, 256)
	prompt := tiny.Prompt(7, 256)
	got := generate(t, e, prompt, &cladev1.GenerateStart{
		MaxTokens: ptr(uint32(6)), Logprobs: &cladev1.Logprobs{Top: 3}, Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)},
	})
	require.Len(t, got.logprobs, 6)
	rows := logits(t, e, append(append([]int32(nil), prompt...), got.ids...))
	for n, lp := range got.logprobs {
		row := rows[len(prompt)-1+n]
		sum := 0.0
		for _, v := range row {
			sum += math.Exp(float64(v))
		}
		require.Equal(t, got.ids[n], lp.Id)
		require.InDelta(t, float64(row[lp.Id])-math.Log(sum), lp.Logprob, 1e-5)
		require.Len(t, lp.Top, 3)
		require.Equal(t, lp.Id, lp.Top[0].Id, "greedy picks the likeliest")
		require.GreaterOrEqual(t, lp.Top[1].Logprob, lp.Top[2].Logprob)
	}
}

func TestScoredLogprobsAreThoseOfTheNextIDs(t *testing.T) {
	e := open(t, tinyPaths[testModel], mlx.Float32, 16)
	ids := tiny.Prompt(33, 256)
	rows := logits(t, e, ids)
	var got []float32
	job := &plugin.ScoreJob{Start: &cladev1.ScoreStart{Output: cladev1.ScoreOutput_SCORE_OUTPUT_LOGPROBS}, IDs: ids}
	require.NoError(t, e.Score(context.Background(), job, func(r *cladev1.ScoreResponse) error {
		if f := r.GetFrame(); f != nil {
			require.EqualValues(t, len(got), f.Position)
			got = append(got, f.Values...)
		}
		return nil
	}))
	require.Len(t, got, len(ids)-1)
	for i, lp := range got {
		sum := 0.0
		for _, v := range rows[i] {
			sum += math.Exp(float64(v))
		}
		require.InDelta(t, float64(rows[i][ids[i+1]])-math.Log(sum), lp, 1e-5)
	}
}

func TestACancelledRequestLeavesTheNextOneClean(t *testing.T) {
	e := open(t, tinyPaths[testModel], mlx.Float32, 8)
	prompt := tiny.Prompt(60, 256)
	want := generate(t, e, prompt, &cladev1.GenerateStart{MaxTokens: ptr(uint32(8))})
	for _, during := range []string{"prefill", "decode"} {
		ctx, cancel := context.WithCancel(context.Background())
		job := &plugin.GenerateJob{Start: &cladev1.GenerateStart{}, IDs: prompt}
		err := e.Generate(ctx, job, func(r *cladev1.GenerateResponse) error {
			if (r.GetPrefill().GetDone() > 8) == (during == "prefill") && (r.GetStep() != nil || during == "prefill") {
				cancel()
			}
			return nil
		})
		cancel()
		require.Equal(t, contract.Cancelled, contract.KindOf(err), "%s: %v", during, err)
		require.Equal(t, want.ids, generate(t, e, prompt, &cladev1.GenerateStart{MaxTokens: ptr(uint32(8))}).ids)
	}
}

func TestOneRequestRunsAndTheQueueIsBounded(t *testing.T) {
	e := open(t, tinyPaths[testModel], mlx.Float32, 64)
	const queue = 4 // as open configures
	// Requests that are not done before the others are there.
	job := func() *plugin.GenerateJob {
		start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(500)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}}
		return &plugin.GenerateJob{Start: start, IDs: tiny.Prompt(4, 256)}
	}
	started, release := make(chan struct{}), make(chan struct{})
	results := make(chan error, queue+1)
	go func() {
		first := true
		results <- e.Generate(context.Background(), job(), func(*cladev1.GenerateResponse) error {
			if first {
				close(started)
				<-release
			}
			first = false
			return nil
		})
	}()
	<-started
	for range queue {
		go func() {
			results <- e.Generate(context.Background(), job(), func(*cladev1.GenerateResponse) error { return nil })
		}()
	}
	require.Eventually(t, func() bool { return e.Stats().QueuedRequests == queue }, waitLimit, waitStep)
	err := e.Generate(context.Background(), job(), func(*cladev1.GenerateResponse) error { return nil })
	require.Equal(t, contract.Busy, contract.KindOf(err), "%v", err)
	require.EqualValues(t, 1, e.Stats().ActiveRequests)
	close(release)
	for range queue + 1 {
		require.NoError(t, <-results)
	}
}

func TestImpossibleRequestsAreRefusedByName(t *testing.T) {
	e := open(t, tinyPaths[testModel], mlx.Float32, 64)
	start := func(s *cladev1.Sampling) *cladev1.GenerateStart { return &cladev1.GenerateStart{Sampling: s} }
	tests := []struct {
		name  string
		ids   []int32
		start *cladev1.GenerateStart
		kind  contract.Kind
		says  string
	}{
		{"no prompt", nil, start(nil), contract.InvalidArgument, "prompt: no token"},
		{"an id outside the vocabulary", []int32{1, 256}, start(nil), contract.InvalidArgument, "id 256 at place 1"},
		{"a negative id", []int32{-1}, start(nil), contract.InvalidArgument, "id -1"},
		{"a full context", tiny.Prompt(512, 256), start(nil), contract.ContextTooLong, "512 tokens leave no room in a context of 512"},
		{"temperature", []int32{1}, start(&cladev1.Sampling{Temperature: ptr(-1.0)}), contract.InvalidArgument, "sampling.temperature"},
		{"top_p", []int32{1}, start(&cladev1.Sampling{TopP: ptr(0.0)}), contract.InvalidArgument, "sampling.top_p"},
		{"min_p", []int32{1}, start(&cladev1.Sampling{MinP: ptr(1.5)}), contract.InvalidArgument, "sampling.min_p"},
		{"typical_p", []int32{1}, start(&cladev1.Sampling{TypicalP: ptr(0.0)}), contract.InvalidArgument, "sampling.typical_p"},
		{"xtc", []int32{1}, start(&cladev1.Sampling{XtcThreshold: ptr(0.7)}), contract.InvalidArgument, "sampling.xtc_threshold"},
		{"generated_prefix", []int32{1}, &cladev1.GenerateStart{GeneratedPrefix: ptr(uint32(2))}, contract.InvalidArgument, "generated_prefix"},
		{"bias", []int32{1}, start(&cladev1.Sampling{LogitBias: map[int32]float64{900: 1}}), contract.InvalidArgument, "sampling.logit_bias"},
		{"repetition", []int32{1}, start(&cladev1.Sampling{Repetition: &cladev1.Penalty{Value: 0}}), contract.InvalidArgument, "sampling.repetition"},
		{"stop id", []int32{1}, &cladev1.GenerateStart{StopTokenIds: []int32{256}}, contract.InvalidArgument, "stop_token_ids"},
		{"logprobs", []int32{1}, &cladev1.GenerateStart{Logprobs: &cladev1.Logprobs{Top: 65}}, contract.InvalidArgument, "logprobs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := e.Generate(context.Background(), &plugin.GenerateJob{Start: tt.start, IDs: tt.ids}, func(*cladev1.GenerateResponse) error { return nil })
			require.Equal(t, tt.kind, contract.KindOf(err), "%v", err)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

func TestAnOversizedMaxTokensIsClampedToTheContext(t *testing.T) {
	e := open(t, tinyPaths[testModel], mlx.Float32, 512)
	got := generate(t, e, tiny.Prompt(500, 256), &cladev1.GenerateStart{MaxTokens: ptr(uint32(4000)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}})
	require.Len(t, got.ids, 12)
	require.Equal(t, cladev1.FinishReason_FINISH_REASON_LENGTH, got.finish.Reason)
}
