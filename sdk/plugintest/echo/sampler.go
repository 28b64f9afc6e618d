package echo

import (
	"cmp"
	"math"
	"slices"

	"github.com/clademl/clade/sdk/contract/cladev1"
)

// sampler picks tokens in the contract's order: bias; repetition, presence, frequency; log probabilities; min_tokens and constraint; top-p,
// min-p, top-k; temperature and noise.
type sampler struct {
	*request
	faults faults
	row    []float64
}

// pick samples the token behind ids; made are generated already.
func (s *sampler) pick(ids []int32, made int) (int32, *cladev1.TokenLogprobs) {
	for id, v := range s.bias {
		s.row[id] += v
	}
	s.penalize(ids)
	var logprobs []float64
	if s.logprobs != nil {
		logprobs = logSoftmax(s.row)
		if s.faults.has(WrongLogprobs) {
			logprobs = slices.Clone(s.row)
		}
	}
	if made < s.minimum {
		for _, id := range s.stops {
			if int(id) < len(s.row) {
				s.row[id] = math.Inf(-1)
			}
		}
	}
	s.forbid(s.row)
	if s.temperature > 0 {
		s.filter()
		for id := range s.row {
			s.row[id] = s.row[id]/s.temperature + noise(s.seed, s.choice, len(ids)-s.noiseBase, id)
		}
	}
	best := 0
	for id, v := range s.row {
		if v > s.row[best] {
			best = id
		}
	}
	return int32(best), s.report(int32(best), logprobs)
}

func (s *sampler) penalize(ids []int32) {
	for kind, p := range s.penalties {
		if p == nil {
			continue
		}
		seen := ids
		if p.Window > 0 && !s.faults.has(IgnoredWindow) {
			seen = ids[max(0, len(ids)-int(p.Window)):]
		}
		counts := map[int32]float64{}
		for _, id := range seen {
			counts[id]++
		}
		for id, n := range counts {
			switch v := &s.row[id]; {
			case kind == 0 && *v < 0:
				*v *= p.Value
			case kind == 0:
				*v /= p.Value
			case kind == 1:
				*v -= p.Value
			default:
				*v -= p.Value * n
			}
		}
	}
}

// filter sets what top-p, min-p and top-k drop to minus infinity; each sees what the one before left.
func (s *sampler) filter() {
	order := make([]int, len(s.row))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.row[b], s.row[a]) })
	keep := len(order)
	if s.topP > 0 && s.topP < 1 {
		p, above := logSoftmax(s.row), 0.0
		for i, id := range order {
			if above >= s.topP {
				keep = i
				break
			}
			above += math.Exp(p[id])
		}
	}
	if s.minP > 0 {
		least := s.row[order[0]] + math.Log(s.minP)
		for keep > 1 && s.row[order[keep-1]] < least {
			keep--
		}
	}
	if s.topK > 0 {
		keep = min(keep, s.topK)
	}
	for _, id := range order[keep:] {
		s.row[id] = math.Inf(-1)
	}
}

func (s *sampler) report(id int32, row []float64) *cladev1.TokenLogprobs {
	if row == nil {
		return nil
	}
	out := &cladev1.TokenLogprobs{Id: id, Logprob: float32(row[id])}
	order := make([]int32, len(row))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(row[b], row[a]) })
	for _, v := range order[:min(len(order), int(s.logprobs.GetTop()))] {
		out.Top = append(out.Top, &cladev1.TopLogprob{Id: v, Logprob: float32(row[v])})
	}
	return out
}

func logSoftmax(row []float64) []float64 {
	most := slices.Max(row)
	var sum float64
	for _, v := range row {
		sum += math.Exp(v - most)
	}
	out := make([]float64, len(row))
	for i, v := range row {
		out[i] = v - most - math.Log(sum)
	}
	return out
}
