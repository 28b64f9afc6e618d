package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
)

// chiSquare is Pearson's statistic of counts against probabilities, cells that expect fewer than five put together, and its degrees of
// freedom.
func chiSquare(t testing.TB, counts []int, probabilities []float64) (statistic float64, freedom int) {
	t.Helper()
	total := 0
	for _, n := range counts {
		total += n
	}
	var few, fewExpected float64
	add := func(n, expected float64) {
		statistic += (n - expected) * (n - expected) / expected
		freedom++
	}
	for i, p := range probabilities {
		switch expected := p * float64(total); {
		case p == 0:
			require.Zero(t, counts[i], "id %d cannot come", i)
		case expected < 5:
			few, fewExpected = few+float64(counts[i]), fewExpected+expected
		default:
			add(float64(counts[i]), expected)
		}
	}
	if fewExpected >= 1 {
		add(few, fewExpected)
	}
	return statistic, freedom - 1
}

// chiSquareBound is what the statistic stays under in all but one of ten thousand cases (Wilson and Hilferty, 1931).
func chiSquareBound(freedom int) float64 {
	const z = 3.719
	d := 2 / (9 * float64(freedom))
	return float64(freedom) * math.Pow(1-d+z*math.Sqrt(d), 3)
}

// expectedShares is how often each id should come: the softmax of what bias, penalties and filters leave.
func expectedShares(x []float64, p sampling) []float64 {
	byProbability := make([]int, len(x))
	for i := range byProbability {
		byProbability[i] = i
	}
	slices.SortStableFunc(byProbability, func(a, b int) int {
		switch {
		case x[a] > x[b]:
			return -1
		case x[a] < x[b]:
			return 1
		}
		return 0
	})
	kept, before, probabilities := make([]float64, len(x)), 0.0, softmax(x)
	least := probabilities[byProbability[0]] * p.minP
	for place, i := range byProbability {
		inside := p.topP == 0 || before < p.topP
		before += probabilities[i]
		kept[i] = math.Inf(-1)
		if inside && probabilities[i] >= least && (p.topK == 0 || place < p.topK) {
			kept[i] = x[i] / p.temperature
		}
	}
	return softmax(kept)
}

func softmax(x []float64) []float64 {
	out, sum := make([]float64, len(x)), 0.0
	for i, v := range x {
		out[i] = math.Exp(v - slices.Max(x))
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// Over many seeds, choices and positions the tokens are distributed as the softmax of what the filters leave. Everything is fixed: a
// failure is a fault.
func TestSampledTokensHaveTheSoftmaxDistribution(t *testing.T) {
	const vocab, rows, rounds = 96, 500, 40
	tests := map[string]sampling{
		"temperature 1":    {temperature: 1},
		"cold":             {temperature: 0.5},
		"hot":              {temperature: 1.8},
		"top p":            {temperature: 1, topP: 0.8},
		"min p":            {temperature: 1.2, minP: 0.05},
		"top k":            {temperature: 1, topK: 12},
		"all filters, hot": {temperature: 1.5, topP: 0.95, minP: 0.01, topK: 40},
		"bias":             {temperature: 1, bias: map[int32]float64{3: 2, 50: -1.5}},
	}
	r := rand.New(rand.NewPCG(31, 7))
	one, scores := make([]float32, vocab), make([]float32, 0, vocab*rows)
	for i := range one {
		one[i] = float32(1.5 * r.NormFloat64())
	}
	for range rows {
		scores = append(scores, one...)
	}
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			x := make([]float64, vocab)
			for i, v := range one {
				x[i] = float64(v) + p.bias[int32(i)]
			}
			counts := make([]int, vocab)
			onWorker(t, func(s *mlx.Scope, k *mlx.Kernels) error {
				e := &Engine{layout: Layout{Vocab: vocab}, config: Config{Sampler: k}}
				logits := mlx.FromSlice(s, scores, rows, vocab)
				for round := range rounds {
					draws := make([]*draw, rows)
					for i := range draws {
						req := &request{sampling: p}
						req.sampling.noise = Noise{Seed: uint64(round*rows+i) / 4, Choice: uint32(i % 2)}
						own := &row{gen: &generation{request: req, sampler: newSampler(req, vocab)}}
						draws[i] = &draw{row: own, history: make([]int32, 1+i/2%2)}
					}
					ids, _, err := e.sample(s, logits, draws).read(s, draws)
					require.NoError(t, err)
					for _, id := range ids {
						counts[id]++
					}
				}
				return s.Err()
			})
			statistic, freedom := chiSquare(t, counts, expectedShares(x, p))
			require.Less(t, statistic, chiSquareBound(freedom), "%d degrees of freedom", freedom)
		})
	}
}

// A sampler that is a little off fails the test above: tokens of temperature 1 are not those of 1.1.
func TestTheChiSquareTestSeesASmallError(t *testing.T) {
	const vocab, count = 96, 20_000
	r := rand.New(rand.NewPCG(31, 7))
	x, noise := make([]float64, vocab), make([]float32, vocab)
	for i := range x {
		x[i] = 1.5 * r.NormFloat64()
	}
	counts := make([]int, vocab)
	for n := range count {
		Noise{Seed: uint64(n)}.Row(1, noise)
		best := 0
		for i := range x {
			if x[i]/1.1+float64(noise[i]) > x[best]/1.1+float64(noise[best]) {
				best = i
			}
		}
		counts[best]++
	}
	statistic, freedom := chiSquare(t, counts, expectedShares(x, sampling{temperature: 1}))
	require.Greater(t, statistic, chiSquareBound(freedom))
	statistic, freedom = chiSquare(t, counts, expectedShares(x, sampling{temperature: 1.1}))
	require.Less(t, statistic, chiSquareBound(freedom))
}
