package engine

import (
	"math"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
)

// sampler picks one request's tokens. Logits go through, in mlx-lm's order: bias; repetition, presence, frequency; then log
// probabilities are taken; then what may not come is ruled out (stops before min_tokens, a constraint's mask); then, when
// sampling, top-p, min-p, typical, XTC and top-k, each over what the one before left; then temperature and noise.
type sampler struct {
	sampling
	vocab int
	row   []float32 // scratch of the vocabulary's width, for the graph
}

func newSampler(r *request, vocab int) *sampler {
	return &sampler{sampling: r.sampling, vocab: vocab}
}

// strikes reports whether XTC does at a position.
func (p *sampling) strikes(position uint32) bool {
	return p.xtcProbability > 0 && p.noise.draw(position) < p.xtcProbability
}

// looksBack reports that what came before changes what comes.
func (p *sampling) looksBack() bool { return p.repetition.on || p.presence.on || p.frequency.on }

// plain reports that the likeliest token is taken, as the logits are.
func (p *sampling) plain() bool {
	return p.temperature == 0 && len(p.bias) == 0 && !p.repetition.on && !p.presence.on && !p.frequency.on
}

// draw is one token that is sampled: the one behind history in its row's text.
type draw struct {
	*row
	segment int      // of its flight
	history []int32  // the row's ids, and drafts behind them where these are verified
	allowed []uint32 // what the row's constraint lets come here; nil without one
}

// generated is how many tokens come before this one, the prompt's aside.
func (d *draw) generated() int { return len(d.history) - d.prompt }

// plain reports that the token is the likeliest and nothing else is asked for.
func (d *draw) plain() bool {
	g := d.gen
	return g.sampling.plain() && g.logprobs == nil &&
		g.constraint == nil && d.generated() >= g.minimum
}

// sample picks a token for each row of logits float32 [n, vocab], as the kernel or as a graph. A draw gets what it would get alone.
func (e *Engine) sample(s *mlx.Scope, logits *mlx.Array, draws []*draw) *sampled {
	if e.config.Sampler != nil {
		rows := make([]mlx.Sampling, len(draws))
		for i, d := range draws {
			rows[i] = d.described()
		}
		out := &sampled{}
		out.tokens, out.told, out.value = s.PackedSample(logits, rows)
		return out
	}
	if !slices.ContainsFunc(draws, func(d *draw) bool { return !d.plain() }) {
		return &sampled{tokens: s.AsType(s.Argmax(logits, 1, false), mlx.Int32)}
	}
	tokens, out := make([]*mlx.Array, len(draws)), &sampled{rows: make([]*mlx.Array, len(draws))}
	for i, d := range draws {
		own := s.Reshape(s.SliceAxis(logits, 0, i, i+1), e.layout.Vocab)
		tokens[i], out.rows[i] = d.pick(s, own)
	}
	out.tokens = tokens[0]
	if len(tokens) > 1 {
		out.tokens = s.Concat(0, tokens...)
	}
	return out
}

// pick samples the token, int32 [1], from logits float32 [vocab].
func (d *draw) pick(s *mlx.Scope, logits *mlx.Array) (token, logprobs *mlx.Array) {
	g, p := d.gen, d.gen.sampler
	if p.row == nil {
		p.row = make([]float32, p.vocab)
	}
	logits = p.process(s, logits, d.history)
	if g.logprobs != nil {
		logprobs = s.Sub(logits, s.LogSumExp(logits, 0, true))
	}
	if d.generated() < g.minimum || g.constraint != nil {
		logits = s.Add(logits, d.forbidden(s))
	}
	if p.temperature > 0 {
		position := uint32(len(d.history))
		logits = p.filter(s, logits, position, g.stops)
		p.noise.Row(position, p.row)
		logits = s.Add(s.DivScalar(logits, p.temperature), mlx.FromSlice(s, p.row))
	}
	return s.AsType(s.Argmax(logits, 0, true), mlx.Int32), logprobs
}

// process applies bias and penalties; history is the prompt and every token since.
func (p *sampler) process(s *mlx.Scope, logits *mlx.Array, history []int32) *mlx.Array {
	if len(p.bias) > 0 {
		clear(p.row)
		for id, v := range p.bias {
			p.row[id] = float32(v)
		}
		logits = s.Add(logits, mlx.FromSlice(s, p.row))
	}
	zero := s.Scalar(0, mlx.Float32)
	if r := p.repetition; r.on {
		seen := s.Greater(p.counts(s, r.window, history), zero)
		hit := s.Where(s.Less(logits, zero), s.MulScalar(logits, r.value), s.DivScalar(logits, r.value))
		logits = s.Where(seen, hit, logits)
	}
	if r := p.presence; r.on {
		seen := s.Greater(p.counts(s, r.window, history), zero)
		logits = s.Where(seen, s.SubScalar(logits, r.value), logits)
	}
	if r := p.frequency; r.on {
		logits = s.Sub(logits, s.MulScalar(p.counts(s, r.window, history), r.value))
	}
	return logits
}

// counts is how often each id occurs among the last window tokens; float32 [vocab].
func (p *sampler) counts(s *mlx.Scope, window int, history []int32) *mlx.Array {
	if window > 0 {
		history = history[max(0, len(history)-window):]
	}
	clear(p.row)
	for _, id := range history {
		p.row[id]++
	}
	return mlx.FromSlice(s, p.row)
}

// forbidden is minus infinity at the ids that may not come: stops before their time, and what a constraint rules out.
func (d *draw) forbidden(s *mlx.Scope) *mlx.Array {
	g := d.gen
	row := g.sampler.row
	clear(row)
	if d.allowed != nil { // where the constraint failed the row has ended
		d.forbid(row)
	}
	if d.generated() < g.minimum {
		for _, id := range g.stops {
			row[id] = float32(math.Inf(-1))
		}
	}
	return mlx.FromSlice(s, row)
}

// filter sets what the filters drop to minus infinity.
func (p *sampler) filter(s *mlx.Scope, logits *mlx.Array, position uint32, stops []int32) *mlx.Array {
	nothing := s.Scalar(math.Inf(-1), mlx.Float32)
	if p.topP > 0 && p.topP < 1 {
		logits = s.Where(s.Less(logits, p.nucleus(s, logits)), nothing, logits)
	}
	if p.minP > 0 {
		least := s.AddScalar(s.Max(logits, 0, true), math.Log(p.minP))
		logits = s.Where(s.Less(logits, least), nothing, logits)
	}
	if p.typicalP > 0 && p.typicalP < 1 {
		logits = p.typical(s, logits, nothing)
	}
	if p.strikes(position) {
		logits = p.exclude(s, logits, nothing, stops)
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

// typical keeps the tokens whose surprise is nearest to the entropy (Meister et al., "Locally typical sampling", 2022), as many as
// hold typicalP of the probability, ties in favour of the lowest id.
func (p *sampler) typical(s *mlx.Scope, logits, nothing *mlx.Array) *mlx.Array {
	logprobs := s.Sub(logits, s.LogSumExp(logits, 0, true))
	probs := s.Exp(logprobs)
	ruled := s.Equal(logits, nothing)
	surprise := s.Neg(s.Where(ruled, s.Scalar(0, mlx.Float32), logprobs))
	entropy := s.Sum(s.Mul(probs, surprise), 0, true)
	distance := s.Where(ruled, s.Scalar(math.Inf(1), mlx.Float32), s.Abs(s.Sub(surprise, entropy)))
	order := s.ArgSort(distance, 0)
	sorted := s.TakeAlongAxis(probs, order, 0)
	before := s.Sub(s.Cumsum(sorted, 0, false, true, mlx.Opt[mlx.DType]{}), sorted)
	kept := s.TakeAlongAxis(logits, order, 0)
	kept = s.Where(s.Less(before, s.Scalar(p.typicalP, mlx.Float32)), kept, nothing)
	return s.PutAlongAxis(logits, order, kept, 0)
}

// exclude drops every token that is likelier than the least likely one above the threshold: "exclude top choices". Stops stay.
func (p *sampler) exclude(s *mlx.Scope, logits, nothing *mlx.Array, stops []int32) *mlx.Array {
	probs := s.Exp(s.Sub(logits, s.LogSumExp(logits, 0, true)))
	above := s.Greater(probs, s.Scalar(p.xtcThreshold, mlx.Float32))
	least := s.Min(s.Where(above, probs, s.Scalar(math.Inf(1), mlx.Float32)), 0, true)
	dropped := s.Greater(probs, least)
	if len(stops) > 0 {
		clear(p.row)
		for _, id := range stops {
			p.row[id] = 1
		}
		dropped = s.LogicalAnd(dropped, s.Equal(mlx.FromSlice(s, p.row), s.Scalar(0, mlx.Float32)))
	}
	return s.Where(dropped, nothing, logits)
}
