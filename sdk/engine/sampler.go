package engine

import (
	"math"

	"github.com/clademl/clade/sdk/mlx"
)

// sampler picks one request's tokens. Logits go through, in mlx-lm's order: bias; repetition, presence, frequency; then log
// probabilities are taken; then, when sampling, top-p, min-p and top-k over that distribution; then temperature and noise.
type sampler struct {
	sampling
	vocab   int
	minimum int
	stops   []int32
	history []int32   // prompt and every token read so far
	row     []float32 // scratch for a row of noise
}

// choice is a sampled token that is not read yet, kept out of its scope.
type choice struct {
	token    *mlx.Array // int32 [1]
	logprobs *mlx.Array // float32 [vocab], nil unless asked for
}

func (c choice) arrays() []*mlx.Array {
	if c.logprobs == nil {
		return []*mlx.Array{c.token}
	}
	return []*mlx.Array{c.token, c.logprobs}
}

func (c choice) Close() {
	c.token.Close()
	c.logprobs.Close()
}

func newSampler(r *request, vocab int) *sampler {
	return &sampler{
		sampling: r.sampling, vocab: vocab, minimum: r.minimum, stops: r.stops, history: append([]int32(nil), r.ids...),
		row: make([]float32, vocab),
	}
}

// pick samples token number n, which will stand at position, from logits float32 [vocab]. pending is the token before it when
// it is not read yet, and so not in the history.
func (p *sampler) pick(s *mlx.Scope, logits *mlx.Array, n, position int, pending *mlx.Array, logprobs bool) choice {
	logits = p.process(s, logits, pending)
	var out choice
	if logprobs {
		out.logprobs = s.Sub(logits, s.LogSumExp(logits, 0, true))
	}
	if n < p.minimum {
		logits = s.Add(logits, p.forbidStops(s))
	}
	if p.temperature > 0 {
		logits = p.filter(s, logits)
		p.noise.Row(uint32(position), p.row)
		logits = s.Add(s.DivScalar(logits, p.temperature), mlx.FromSlice(s, p.row))
	}
	out.token = s.AsType(s.Argmax(logits, 0, true), mlx.Int32)
	return out
}

// process applies bias and penalties.
func (p *sampler) process(s *mlx.Scope, logits, pending *mlx.Array) *mlx.Array {
	if len(p.bias) > 0 {
		row := make([]float32, p.vocab)
		for id, v := range p.bias {
			row[id] = float32(v)
		}
		logits = s.Add(logits, mlx.FromSlice(s, row))
	}
	zero := func() *mlx.Array { return s.Scalar(0, mlx.Float32) }
	if r := p.repetition; r.on {
		seen := s.Greater(p.counts(s, r.window, pending), zero())
		hit := s.Where(s.Less(logits, zero()), s.MulScalar(logits, r.value), s.DivScalar(logits, r.value))
		logits = s.Where(seen, hit, logits)
	}
	if r := p.presence; r.on {
		seen := s.Greater(p.counts(s, r.window, pending), zero())
		logits = s.Where(seen, s.SubScalar(logits, r.value), logits)
	}
	if r := p.frequency; r.on {
		logits = s.Sub(logits, s.MulScalar(p.counts(s, r.window, pending), r.value))
	}
	return logits
}

// counts is how often each id occurs among the last window tokens, the pending one included; float32 [vocab].
func (p *sampler) counts(s *mlx.Scope, window int, pending *mlx.Array) *mlx.Array {
	known := p.history
	if window > 0 {
		if pending != nil {
			window--
		}
		known = known[max(0, len(known)-window):]
	}
	row := make([]float32, p.vocab)
	for _, id := range known {
		row[id]++
	}
	counts := mlx.FromSlice(s, row)
	if pending == nil {
		return counts
	}
	ids := s.Arange(0, float64(p.vocab), 1, mlx.Int32)
	return s.Add(counts, s.AsType(s.Equal(ids, pending), mlx.Float32))
}

// forbidStops is minus infinity at the ids that would end the generation too early.
func (p *sampler) forbidStops(s *mlx.Scope) *mlx.Array {
	row := make([]float32, p.vocab)
	for _, id := range p.stops {
		row[id] = float32(math.Inf(-1))
	}
	return mlx.FromSlice(s, row)
}

// filter sets what top-p, min-p and top-k drop to minus infinity; each sees what the one before left.
func (p *sampler) filter(s *mlx.Scope, logits *mlx.Array) *mlx.Array {
	nothing := s.Scalar(math.Inf(-1), mlx.Float32)
	if p.topP > 0 && p.topP < 1 {
		logits = s.Where(s.Less(logits, p.nucleus(s, logits)), nothing, logits)
	}
	if p.minP > 0 {
		least := s.AddScalar(s.Max(logits, 0, true), math.Log(p.minP))
		logits = s.Where(s.Less(logits, least), nothing, logits)
	}
	if p.topK > 0 && p.topK < p.vocab {
		order := s.ArgSort(s.Neg(logits), 0) // stable: of equal logits the lowest ids stay
		logits = s.PutAlongAxis(logits, s.SliceAxis(order, 0, p.topK, p.vocab), nothing, 0)
	}
	return logits
}

// nucleus is the least logit that top-p keeps [1]: tokens above it hold less than topP of the probability.
func (p *sampler) nucleus(s *mlx.Scope, logits *mlx.Array) *mlx.Array {
	logprobs := s.Sub(logits, s.LogSumExp(logits, 0, true))
	order := s.ArgSort(logprobs, 0)
	sorted := s.TakeAlongAxis(logprobs, order, 0)
	probs := s.Exp(sorted)
	above := s.Cumsum(probs, 0, true, false, mlx.Opt[mlx.DType]{})
	total := s.Add(s.SliceAxis(above, 0, 0, 1), s.SliceAxis(probs, 0, 0, 1))
	dropped := s.Sum(s.AsType(s.GreaterEqual(above, s.MulScalar(total, p.topP)), mlx.Int32), 0, true)
	return s.TakeAlongAxis(s.TakeAlongAxis(logits, order, 0), dropped, 0)
}
