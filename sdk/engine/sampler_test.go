package engine

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/mlx"
)

// testRuntime is CLADE_RUNTIME, else bin/runtime/cpu of this repository.
func testRuntime(t testing.TB) (*mlx.Runtime, *mlx.Kernels) {
	t.Helper()
	dir := os.Getenv("CLADE_RUNTIME")
	if dir == "" {
		var err error
		dir, err = filepath.Abs(filepath.Join("..", "..", "bin", "runtime", "cpu"))
		require.NoError(t, err)
	}
	r, err := mlx.Open(dir)
	require.NoError(t, err, "run make setup")
	k, err := r.Kernels()
	require.NoError(t, err)
	return r, k
}

// onWorker runs fn on a worker of its own, which leaves no array behind.
func onWorker(t testing.TB, fn func(s *mlx.Scope, k *mlx.Kernels) error) {
	t.Helper()
	r, k := testRuntime(t)
	before := mlx.LiveHandles()
	w, err := r.NewWorker(mlx.CPU)
	require.NoError(t, err)
	require.NoError(t, w.Do(context.Background(), func(s *mlx.Scope) error { return fn(s, k) }))
	require.NoError(t, w.Close())
	require.Equal(t, before, mlx.LiveHandles())
}

// drawnScores are normal; rounded to eighths, many of them are equal.
func drawnScores(r *rand.Rand, n int) []float32 {
	spread, out := 1+4*r.Float64(), make([]float32, n)
	rounded := r.IntN(2) == 0
	for i := range out {
		v := r.NormFloat64() * spread
		if rounded {
			v = math.Round(v*8) / 8
		}
		out[i] = float32(v)
	}
	return out
}

// drawnDraw is a row with some of everything that a request may ask for.
func drawnDraw(r *rand.Rand, vocab int) *draw {
	sometimes := func() bool { return r.IntN(3) == 0 }
	between := func(lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }
	ids := func(n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(r.IntN(vocab))
		}
		return out
	}
	req := &request{ids: ids(40), prompt: 30}
	p := &req.sampling
	penalized := func(lo, hi float64) penalty {
		return penalty{on: sometimes(), value: between(lo, hi), window: r.IntN(50)}
	}
	p.repetition, p.presence, p.frequency = penalized(0.7, 2), penalized(-1, 2), penalized(-1, 2)
	if sometimes() {
		p.bias = map[int32]float64{ids(1)[0]: between(-8, 8), ids(1)[0]: between(-8, 8)}
	}
	if sometimes() {
		req.stops, req.minimum = ids(3), 20
	}
	if sometimes() {
		req.logprobs = &cladev1.Logprobs{Top: uint32(r.IntN(9))}
	}
	p.noise = Noise{Seed: r.Uint64(), Choice: r.Uint32N(4)}
	if !sometimes() {
		p.temperature = between(0.1, 2)
	}
	for _, one := range []struct {
		to     *float64
		lo, hi float64
	}{{&p.topP, 0.05, 0.999}, {&p.minP, 0.001, 1}, {&p.typicalP, 0.05, 0.999}, {&p.xtcProbability, 0, 1}} {
		if sometimes() {
			*one.to = between(one.lo, one.hi)
		}
	}
	p.xtcThreshold = between(0, 0.3)
	if sometimes() {
		p.topK = 1 + r.IntN(40)
	}
	d := &draw{row: &row{ids: req.ids, prompt: req.prompt, gen: &generation{request: req, sampler: newSampler(req, vocab)}}, history: req.ids}
	if sometimes() {
		d.gen.constraint = fakeConstraint{}
		d.allowed = make([]uint32, (vocab+31)/32)
		for i := range d.allowed {
			d.allowed[i] = r.Uint32() | 1
		}
	}
	return d
}

type fakeConstraint struct{ Constraint }

func TestTheKernelPicksWhatTheGraphPicks(t *testing.T) {
	const rounds, rows = 60, 4
	onWorker(t, func(s *mlx.Scope, k *mlx.Kernels) error {
		for round := range rounds {
			r := rand.New(rand.NewPCG(8, uint64(round)))
			vocab := []int{33, 1000, 9001}[round%3]
			var draws []*draw
			var scores []float32
			for range rows {
				draws, scores = append(draws, drawnDraw(r, vocab)), append(scores, drawnScores(r, vocab)...)
			}
			logits := mlx.FromSlice(s, scores, rows, vocab)
			e := &Engine{layout: Layout{Vocab: vocab}}
			ids, logprobs, err := e.sample(s, logits, draws).read(s, draws)
			require.NoError(t, err)
			e.config.Sampler = k
			got, told, err := e.sample(s, logits, draws).read(s, draws)
			require.NoError(t, err)
			for i, d := range draws {
				require.Equal(t, ids[i], got[i], "round %d, row %d: %+v", round, i, d.gen.sampling)
				if d.gen.logprobs == nil {
					require.Nil(t, told[i])
					continue
				}
				require.InDelta(t, logprobs[i].Logprob, told[i].Logprob, 1e-4) // MLX adds one after another in float32
				require.Len(t, told[i].Top, len(logprobs[i].Top))
				for j, want := range logprobs[i].Top {
					require.Equal(t, want.Id, told[i].Top[j].Id, "round %d, row %d, alternative %d", round, i, j)
					require.InDelta(t, want.Logprob, told[i].Top[j].Logprob, 1e-4)
				}
			}
		}
		return s.Err()
	})
}

func TestTheKernelsTokensDoNotDependOnLevelOrThreads(t *testing.T) {
	const rows, vocab = 12, 20_000
	r := rand.New(rand.NewPCG(9, 9))
	var draws []*draw
	var scores []float32
	for range rows {
		draws, scores = append(draws, drawnDraw(r, vocab)), append(scores, drawnScores(r, vocab)...)
	}
	onWorker(t, func(s *mlx.Scope, k *mlx.Kernels) error {
		threads := k.Threads()
		defer func() {
			require.NoError(t, k.SetLevel(""))
			require.NoError(t, k.SetThreads(threads))
		}()
		e := &Engine{layout: Layout{Vocab: vocab}, config: Config{Sampler: k}}
		logits := mlx.FromSlice(s, scores, rows, vocab)
		var want []int32
		var values []*cladev1.TokenLogprobs
		for _, level := range k.Levels() {
			for _, n := range []int{1, 2, 3} {
				require.NoError(t, k.SetLevel(level))
				require.NoError(t, k.SetThreads(n))
				ids, logprobs, err := e.sample(s, logits, draws).read(s, draws)
				require.NoError(t, err)
				if want == nil {
					want, values = ids, logprobs
				}
				require.Equal(t, want, ids, "%s, %d threads", level, n)
				require.Equal(t, values, logprobs, "%s, %d threads", level, n)
			}
		}
		for i, d := range draws { // a row gets what it gets alone
			alone, _, err := e.sample(s, s.SliceAxis(logits, 0, i, i+1), []*draw{d}).read(s, []*draw{d})
			require.NoError(t, err)
			require.Equal(t, want[i:i+1], alone)
		}
		return s.Err()
	})
}

// The kernel's noise is the frozen noise: with nothing but noise to decide, the token is the one with the most of it.
func TestTheKernelsNoiseIsTheFrozenNoise(t *testing.T) {
	const vocab, count = 3000, 40
	onWorker(t, func(s *mlx.Scope, k *mlx.Kernels) error {
		e := &Engine{layout: Layout{Vocab: vocab}, config: Config{Sampler: k}}
		logits, noise := s.Zeros([]int{1, vocab}, mlx.Float32), make([]float32, vocab)
		for n := range count {
			req := &request{ids: make([]int32, 1+n), prompt: 1, sampling: sampling{temperature: 1, noise: Noise{Seed: uint64(n) << 31, Choice: uint32(n)}}}
			d := &draw{row: &row{ids: req.ids, prompt: 1, gen: &generation{request: req, sampler: newSampler(req, vocab)}}, history: req.ids}
			req.sampling.noise.Row(uint32(len(req.ids)), noise)
			best := 0
			for id, v := range noise {
				if v > noise[best] {
					best = id
				}
			}
			ids, _, err := e.sample(s, logits, []*draw{d}).read(s, []*draw{d})
			require.NoError(t, err)
			require.Equal(t, []int32{int32(best)}, ids, "%+v", req.sampling.noise)
		}
		return s.Err()
	})
}
