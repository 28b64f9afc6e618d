package enginetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// Wish is one request and what it gets when nothing else runs.
type Wish struct {
	Prompt []int32
	Start  *cladev1.GenerateStart
	Want   []int32
}

// Wishes makes n requests of every kind of sampling over 256 ids, with their answers from an engine that runs one at a time, cold.
// Some prompts begin alike.
func Wishes(t testing.TB, alone *engine.Engine, n int) []Wish {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]Wish, n)
	for i := range out {
		sampling := &cladev1.Sampling{IgnoreEos: proto.Bool(true)}
		switch i % 4 {
		case 1:
			sampling.Temperature, sampling.Seed = proto.Float64(1.5), proto.Uint64(uint64(i))
		case 2:
			sampling.Temperature, sampling.Seed = proto.Float64(2), proto.Uint64(uint64(i))
			sampling.TopP, sampling.TopK = proto.Float64(0.9), proto.Uint32(40)
		case 3:
			sampling.Repetition = &cladev1.Penalty{Value: 1.3, Window: 20}
		}
		prompt := tiny.Prompt(1+rng.IntN(90), 256)
		for j := len(prompt) / 2 * (i % 2); j < len(prompt); j++ {
			prompt[j] = (prompt[j] + int32(i)) % 256
		}
		start := &cladev1.GenerateStart{MaxTokens: proto.Uint32(uint32(1 + rng.IntN(24))), Sampling: sampling, Choice: proto.Uint32(uint32(i % 3))}
		out[i] = Wish{Prompt: prompt, Start: start}
		out[i].Want, _ = Generate(t, alone, prompt, start)
	}
	return out
}

// Schedule runs requests drawn from wishes at once: they arrive within 20 ms, and a quarter of them is cancelled early. Each must get
// its own answer, a cancelled one the beginning of it.
func Schedule(t testing.TB, e *engine.Engine, wishes []Wish, requests int, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	var wg sync.WaitGroup
	for range requests {
		w, delay, cancelAt := wishes[rng.IntN(len(wishes))], time.Duration(rng.IntN(20))*time.Millisecond, -1
		if rng.IntN(4) == 0 {
			cancelAt = rng.IntN(8)
		}
		wg.Go(func() {
			time.Sleep(delay)
			got, err := w.ask(e, cancelAt)
			if contract.KindOf(err) == contract.Cancelled {
				if len(got) > len(w.Want) || fmt.Sprint(got) != fmt.Sprint(w.Want[:len(got)]) {
					t.Errorf("seed %d: %v is no beginning of %v", seed, got, w.Want)
				}
				return
			}
			if err != nil || fmt.Sprint(got) != fmt.Sprint(w.Want) {
				t.Errorf("seed %d: got %v, want %v: %v", seed, got, w.Want, err)
			}
		})
	}
	wg.Wait()
}

// ask runs the request, and cancels it at its event of that number.
func (w Wish) ask(e *engine.Engine, cancelAt int) (got []int32, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events := 0
	err = e.Generate(ctx, &plugin.GenerateJob{Start: w.Start, IDs: w.Prompt}, func(r *cladev1.GenerateResponse) error {
		if events++; events == cancelAt {
			cancel()
		}
		got = append(got, r.GetStep().GetIds()...)
		return nil
	})
	return got, err
}

// AskAll runs requests at once and returns their ids and errors.
func AskAll(e *engine.Engine, wishes []Wish) (ids [][]int32, errs []error) {
	var wg sync.WaitGroup
	ids, errs = make([][]int32, len(wishes)), make([]error, len(wishes))
	for i, w := range wishes {
		wg.Go(func() { ids[i], errs[i] = w.ask(e, -1) })
	}
	wg.Wait()
	return ids, errs
}
