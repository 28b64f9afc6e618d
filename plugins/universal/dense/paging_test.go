package dense

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// everyVocab is the ids that all tiny models have.
const everyVocab = 199

// alike are requests whose prompts begin alike for several blocks, with their answers when each runs alone in buffers of its own.
func alike(t *testing.T, path string, n int) []wish {
	t.Helper()
	alone := openConfig(t, path, engine.Config{Context: 1024, PrefillChunk: 512})
	rng := rand.New(rand.NewPCG(11, 12))
	out := make([]wish, n)
	for i := range out {
		sampling := &cladev1.Sampling{IgnoreEos: ptr(true)}
		if i%2 == 1 {
			sampling.Temperature, sampling.Seed = ptr(1.5), ptr(uint64(i))
		}
		prompt := tiny.Prompt(540+rng.IntN(120), everyVocab)
		for at := []int{200, 255, 256, 511, 512, 530}[i%6] + rng.IntN(5); at < len(prompt); at++ {
			prompt[at] = (prompt[at] + int32(i)) % everyVocab
		}
		out[i] = wish{prompt: prompt, start: &cladev1.GenerateStart{MaxTokens: ptr(uint32(1 + rng.IntN(30))), Sampling: sampling, Choice: ptr(uint32(i % 3))}}
		out[i].want = generate(t, alone, prompt, out[i].start).ids
	}
	return out
}

// Rows that share blocks, run out of them, are put back, cancelled, drafted for and kept have the tokens that they have alone.
func TestRowsThatShareBlocksHaveTheirOwnTokens(t *testing.T) {
	for _, name := range []string{testModel, "llama-sliding", "minicpm3-a"} {
		all := alike(t, tinyPaths[name], 18)
		wild := &guesser{answers: all, rng: rand.New(rand.NewPCG(5, 6))}
		for i, c := range []struct {
			rows, kv int
			kept     int64
		}{{8, 4096, 1 << 30}, {8, 2048, 1 << 30}, {5, 1280, 2_500_000}} {
			t.Run(fmt.Sprintf("%s %d rows in %d blocks", name, c.rows, c.kv/kv.Step), func(t *testing.T) {
				config := engine.Config{
					Context: 1024, PrefillChunk: 100 + 200*i, Rows: c.rows, KVTokens: c.kv, Queue: 16, PrefixBytes: c.kept, Paging: true,
				}
				if i == 1 {
					config.Speculation = engine.Speculation{Drafter: wild, Depth: 5, Always: true}
				}
				e := openConfig(t, tinyPaths[name], config)
				for seed := range uint64(3) {
					schedule(t, e, all, 16, seed)
				}
				s := e.Stats()
				require.Zero(t, s.FailedEvaluations)
				require.Zero(t, s.KvTokensUsed)
				require.Positive(t, s.PrefixCachedTokens)
			})
		}
	}
}

// held runs choices of a prompt at once and returns the most tokens of cache that were held, the most rows, and how often one was put
// back.
func held(t *testing.T, prompt []int32, choices int, config engine.Config, want [][]int32) (tokens, rows int64, putBack uint64) {
	t.Helper()
	e := openConfig(t, tinyPaths[testModel], config)
	most := func(at *atomic.Int64, n int64) {
		for old := at.Load(); n > old && !at.CompareAndSwap(old, n); old = at.Load() {
		}
	}
	var mostTokens, mostRows atomic.Int64
	var wg sync.WaitGroup
	for i := range choices {
		wg.Go(func() {
			var got []int32
			start := choiceStart(uint32(i), 40)
			err := e.Generate(context.Background(), &plugin.GenerateJob{Start: start, IDs: prompt}, func(r *cladev1.GenerateResponse) error {
				got = append(got, r.GetStep().GetIds()...)
				s := e.Stats()
				most(&mostTokens, int64(s.KvTokensUsed))
				most(&mostRows, int64(s.ActiveRequests))
				return nil
			})
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want[i]) {
				t.Errorf("choice %d: got %v, want %v: %v", i, got, want[i], err)
			}
		})
	}
	wg.Wait()
	require.Zero(t, e.Stats().FailedEvaluations)
	return mostTokens.Load(), mostRows.Load(), e.Stats().Preemptions
}

// The choices of a prompt hold its whole blocks once, and each one of its own: where only one row's prompt finds room beside another's
// otherwise, all of them run at once.
func TestChoicesOfAPromptHoldItsBlocksOnce(t *testing.T) {
	const choices = 5
	prompt := tiny.Prompt(600, 256) // two blocks, and 88 tokens of a third
	alone := openConfig(t, tinyPaths[testModel], engine.Config{Context: 1024, PrefillChunk: 64})
	var want [][]int32
	for i := range choices {
		want = append(want, generate(t, alone, prompt, choiceStart(uint32(i), 40)).ids)
	}
	config := engine.Config{Context: 1024, PrefillChunk: 64, Rows: choices, Queue: 8, PrefixBytes: 1 << 30, KVTokens: 32 * kv.Step}
	tokens, _, _ := held(t, prompt, choices, config, want)
	require.EqualValues(t, choices*3*kv.Step, tokens)
	config.Paging = true
	tokens, _, _ = held(t, prompt, choices, config, want)
	require.EqualValues(t, (2+choices)*kv.Step, tokens)

	config.KVTokens = 7 * kv.Step
	tokens, rows, putBack := held(t, prompt, choices, config, want)
	require.EqualValues(t, 7*kv.Step, tokens)
	require.EqualValues(t, choices, rows)
	require.Zero(t, putBack)
	config.Paging = false
	_, rows, _ = held(t, prompt, choices, config, want)
	require.Less(t, rows, int64(choices))
}

// A shared beginning takes its memory once: rows, and what is kept of it, hold the same blocks.
func TestASharedBeginningTakesMemoryOnce(t *testing.T) {
	const rows = 6
	prompt := tiny.Prompt(800, 256) // three blocks, and 32 tokens
	memory := func(paging bool) int64 {
		e := openConfig(t, tinyPaths[testModel], engine.Config{Context: 1024, PrefillChunk: 256, Rows: rows, Queue: 8, PrefixBytes: 1 << 30, Paging: paging})
		base := int64(e.Stats().Memory.ActiveBytes)
		generate(t, e, prompt, &cladev1.GenerateStart{MaxTokens: ptr(uint32(1))})
		var most atomic.Int64
		var wg sync.WaitGroup
		for i := range rows {
			wg.Go(func() {
				job := &plugin.GenerateJob{Start: choiceStart(uint32(i), 60), IDs: append(append([]int32{}, prompt...), int32(i))}
				if err := e.Generate(context.Background(), job, func(*cladev1.GenerateResponse) error {
					s := e.Stats()
					if s.ActiveRequests == rows {
						most.Store(max(most.Load(), int64(s.Memory.ActiveBytes)-base))
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return most.Load()
	}
	plain, paged := memory(false), memory(true)
	block := kv.Step * tokenBytes(t)
	t.Logf("plain %d, paged %d, a block %d", plain, paged, block)
	require.GreaterOrEqual(t, plain, (rows*4+3)*block, "a copy for each row, and one that is kept")
	require.Less(t, paged, (4+rows+2)*block, "the beginning once, its last block kept, and one for each row; and what a step takes")
}

// tokenBytes is what a token takes in the caches of the test's model.
func tokenBytes(t *testing.T) (n int64) {
	t.Helper()
	a, err := artifact.Open(tinyPaths[testModel])
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	for _, p := range readConfig(t, a).Caches() {
		n += p.BytesPerToken(mlx.Float32)
	}
	return n
}
