package llama

import (
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
	if k := int(s.GetTopK()); k > 0 && k < len(order) {
		drop(k)
	}
}
