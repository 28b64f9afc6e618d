package dense

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// schedules is how many random schedules run unless CLADE_SCHEDULES says otherwise; `make test-full` runs 1,000.
const schedules = 100

// wish is one request of a schedule and what it gets when nothing else runs.
type wish struct {
	prompt []int32
	start  *cladev1.GenerateStart
	want   []int32
}

// wishes makes requests of every kind of sampling, with their answers from an engine that runs one at a time, cold.
func wishes(t *testing.T, n int) []wish {
	t.Helper()
	alone := open(t, tinyPaths[testModel], mlx.Float32, 512)
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]wish, n)
	for i := range out {
		sampling := &cladev1.Sampling{IgnoreEos: ptr(true)}
		switch i % 4 {
		case 1:
			sampling.Temperature, sampling.Seed = ptr(1.5), ptr(uint64(i))
		case 2:
			sampling.Temperature, sampling.Seed, sampling.TopP, sampling.TopK = ptr(2.0), ptr(uint64(i)), ptr(0.9), ptr(uint32(40))
		case 3:
			sampling.Repetition = &cladev1.Penalty{Value: 1.3, Window: 20}
		}
		prompt := tiny.Prompt(1+rng.IntN(90), 256)
		for j := range prompt {
			prompt[j] = (prompt[j] + int32(i)) % 256
		}
		out[i] = wish{prompt: prompt, start: &cladev1.GenerateStart{MaxTokens: ptr(uint32(1 + rng.IntN(24))), Sampling: sampling, Choice: ptr(uint32(i % 3))}}
		out[i].want = generate(t, alone, prompt, out[i].start).ids
	}
	return out
}

// Whatever else runs, arrives and is cancelled, however prompts are cut and however little room there is: the tokens are those of
// the request alone.
func TestTokensDoNotDependOnOtherRequests(t *testing.T) {
	count := schedules
	if v := os.Getenv("CLADE_SCHEDULES"); v != "" {
		var err error
		count, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	all := wishes(t, 64)
	wild := &guesser{answers: all, rng: rand.New(rand.NewPCG(5, 6))}
	for _, c := range []struct{ rows, requests, kv int }{{1, 7, 512}, {7, 7, 2048}, {32, 32, 8192}, {8, 32, 1024}} {
		t.Run(fmt.Sprintf("%d of %d requests at once", c.rows, c.requests), func(t *testing.T) {
			// Nothing, everything, or a few runs of the answers before are kept.
			kept := map[int]int64{3: 0, 40: 1 << 30, 512: 40_000}
			// Drafts come from a model, from a knowing and wild guesser, or from the text, where it pays.
			drafted := map[int]engine.Speculation{
				3:   {Drafter: checkpointDraft{path: tinyPaths["llama-affine8"]}, Depth: 3, Always: true},
				40:  {Drafter: wild, Depth: 5, Always: true},
				512: {Drafter: engine.Ngram(), Depth: 4},
			}
			for _, chunk := range []int{3, 40, 512} {
				each := (count + 11) / 12
				for _, paged := range []bool{false, true} { // half of the schedules each
					e := openConfig(t, tinyPaths[testModel], engine.Config{
						PrefillChunk: chunk, Rows: c.rows, KVTokens: c.kv, Queue: c.requests, PrefixBytes: kept[chunk], Speculation: drafted[chunk], Paging: paged,
					})
					for seed := range each {
						if seed%2 == 1 == paged {
							schedule(t, e, all, c.requests, uint64(chunk+seed))
						}
					}
					require.Zero(t, e.Stats().FailedEvaluations)
					require.Zero(t, e.Stats().KvTokensUsed)
					require.NoError(t, e.Close())
				}
			}
		})
	}
}

func schedule(t *testing.T, e *engine.Engine, all []wish, requests int, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	var wg sync.WaitGroup
	for range requests {
		w, delay, cancelAt := all[rng.IntN(len(all))], time.Duration(rng.IntN(20))*time.Millisecond, -1
		if rng.IntN(4) == 0 {
			cancelAt = rng.IntN(8)
		}
		wg.Go(func() {
			time.Sleep(delay)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var got []int32
			events := 0
			err := e.Generate(ctx, &plugin.GenerateJob{Start: w.start, IDs: w.prompt}, func(r *cladev1.GenerateResponse) error {
				if events++; events == cancelAt {
					cancel()
				}
				got = append(got, r.GetStep().GetIds()...)
				return nil
			})
			if contract.KindOf(err) == contract.Cancelled {
				if len(got) > len(w.want) || fmt.Sprint(got) != fmt.Sprint(w.want[:len(got)]) {
					t.Errorf("seed %d: %v is no beginning of %v", seed, got, w.want)
				}
				return
			}
			if err != nil || fmt.Sprint(got) != fmt.Sprint(w.want) {
				t.Errorf("seed %d: got %v, want %v: %v", seed, got, w.want, err)
			}
		})
	}
	wg.Wait()
}
