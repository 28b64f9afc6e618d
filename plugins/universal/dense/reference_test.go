package dense

import (
	"cmp"
	"math"
	"slices"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
)

// referencePick is the sampler written plainly over one row of logits: mlx-lm 0.32.2's logits processors and make_sampler, with
// our noise in place of its random numbers.
func referencePick(row []float32, history []int32, s *cladev1.Sampling, position int) int32 {
	x := make([]float64, len(row))
	for i, v := range row {
		x[i] = float64(v) + s.LogitBias[int32(i)]
	}
	window := func(p *cladev1.Penalty) map[int32]float64 {
		seen := history
		if p.Window > 0 {
			seen = history[max(0, len(history)-int(p.Window)):]
		}
		counts := map[int32]float64{}
		for _, id := range seen {
			counts[id]++
		}
		return counts
	}
	if p := s.Repetition; p != nil {
		for id := range window(p) {
			if x[id] < 0 {
				x[id] *= p.Value
			} else {
				x[id] /= p.Value
			}
		}
	}
	if p := s.Presence; p != nil {
		for id := range window(p) {
			x[id] -= p.Value
		}
	}
	if p := s.Frequency; p != nil {
		for id, n := range window(p) {
			x[id] -= p.Value * n
		}
	}
	if s.GetTemperature() > 0 {
		referenceFilters(x, s)
		noise := engine.Noise{Seed: s.GetSeed()}
		for i := range x {
			x[i] = x[i]/s.GetTemperature() + float64(noise.At(uint32(position), int32(i)))
		}
	}
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

func referenceFilters(x []float64, s *cladev1.Sampling) {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	drop := func(from int) {
		for _, i := range order[from:] {
			x[i] = math.Inf(-1)
		}
	}
	byValue := func(a, b int) int {
		switch {
		case x[a] > x[b]:
			return -1
		case x[a] < x[b]:
			return 1
		}
		return a - b
	}
	slices.SortFunc(order, byValue)
	if p := s.GetTopP(); p > 0 && p < 1 {
		var total, above float64
		for _, v := range x {
			total += math.Exp(v)
		}
		for i, id := range order {
			if above >= p*total {
				drop(i)
				break
			}
			above += math.Exp(x[id])
		}
	}
	if p := s.GetMinP(); p > 0 {
		least := x[order[0]] + math.Log(p)
		for i, id := range order {
			if x[id] < least {
				drop(i)
				break
			}
		}
	}
	if p := s.GetTypicalP(); p > 0 && p < 1 {
		referenceTypical(x, p)
		slices.SortFunc(order, byValue)
	}
	if p := s.GetXtcProbability(); p == 1 {
		referenceXTC(x, s.GetXtcThreshold())
		slices.SortFunc(order, byValue)
	}
	if k := int(s.GetTopK()); k > 0 && k < len(order) {
		drop(k)
	}
}

// probabilities is the softmax of x.
func probabilities(x []float64) []float64 {
	out, total := make([]float64, len(x)), 0.0
	for i, v := range x {
		out[i] = math.Exp(v)
		total += out[i]
	}
	for i := range out {
		out[i] /= total
	}
	return out
}

func referenceTypical(x []float64, p float64) {
	probs, entropy := probabilities(x), 0.0
	for _, q := range probs {
		if q > 0 {
			entropy -= q * math.Log(q)
		}
	}
	order := make([]int, 0, len(x))
	for i, q := range probs {
		if q > 0 {
			order = append(order, i)
		}
	}
	distance := func(i int) float64 { return math.Abs(-math.Log(probs[i]) - entropy) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(distance(a), distance(b)) })
	before := 0.0
	for _, i := range order {
		if before >= p {
			x[i] = math.Inf(-1)
		}
		before += probs[i]
	}
}

// referenceXTC is XTC that always strikes.
func referenceXTC(x []float64, threshold float64) {
	probs, least := probabilities(x), math.Inf(1)
	for _, q := range probs {
		if q > threshold {
			least = min(least, q)
		}
	}
	for i, q := range probs {
		if q > least {
			x[i] = math.Inf(-1)
		}
	}
}
