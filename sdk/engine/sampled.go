package engine

import (
	"slices"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/mlx"
)

// sampled is what was picked for some draws and is not read yet. Its arrays are the scope's until they are kept.
type sampled struct {
	tokens *mlx.Array // int32 [n]
	// By the graph: the log probabilities [vocab] of each draw that asks for them. By the kernel: the token's and the alternatives', by
	// ids, for all draws; nil where none asks.
	rows        []*mlx.Array
	told, value *mlx.Array // [n, 1 + alternatives]
}

// arrays are those that are there.
func (p *sampled) arrays() []*mlx.Array {
	all := append([]*mlx.Array{p.tokens, p.told, p.value}, p.rows...)
	return slices.DeleteFunc(all, func(a *mlx.Array) bool { return a == nil })
}

func (p *sampled) close() {
	for _, a := range p.arrays() {
		a.Close()
	}
	*p = sampled{}
}

// read waits for the tokens, and the log probabilities of the draws whose rows go on; nil for the others.
func (p *sampled) read(s *mlx.Scope, draws []*draw) (ids []int32, logprobs []*cladev1.TokenLogprobs, err error) {
	if ids, err = mlx.ToSlice[int32](s, p.tokens); err != nil {
		return nil, nil, err
	}
	logprobs = make([]*cladev1.TokenLogprobs, len(ids))
	var told []int32
	var values []float32
	if p.told != nil {
		if told, err = mlx.ToSlice[int32](s, p.told); err != nil {
			return nil, nil, err
		}
		if values, err = mlx.ToSlice[float32](s, p.value); err != nil {
			return nil, nil, err
		}
	}
	width := len(told) / len(ids)
	for i, d := range draws {
		switch {
		case d.over || d.gen.logprobs == nil:
		case p.told != nil:
			logprobs[i] = tell(told[i*width:(i+1)*width], values[i*width:(i+1)*width], int(d.gen.logprobs.GetTop()))
		default:
			row, err := mlx.ToSlice[float32](s, p.rows[i])
			if err != nil {
				return nil, nil, err
			}
			logprobs[i] = topLogprobs(ids[i], row, int(d.gen.logprobs.GetTop()))
		}
	}
	return ids, logprobs, nil
}

// tell is a row of the kernel's answer: the token, and at most n alternatives behind it.
func tell(ids []int32, values []float32, n int) *cladev1.TokenLogprobs {
	out := &cladev1.TokenLogprobs{Id: ids[0], Logprob: values[0]}
	for i := 1; i < len(ids) && i <= n && ids[i] >= 0; i++ {
		out.Top = append(out.Top, &cladev1.TopLogprob{Id: ids[i], Logprob: values[i]})
	}
	return out
}

// described is the draw for the kernel.
func (d *draw) described() mlx.Sampling {
	g, p := d.gen, d.gen.sampler
	out := mlx.Sampling{
		Bias: p.bias, Repetition: 1, TopP: p.topP, MinP: p.minP, TypicalP: p.typicalP, TopK: p.topK, Temperature: p.temperature,
		Seed: p.noise.Seed, Choice: p.noise.Choice, Position: uint32(len(d.history)), Allowed: d.allowed,
	}
	longest, whole := 0, false
	for _, one := range []struct {
		penalty
		value  *float64
		window *int
	}{
		{p.repetition, &out.Repetition, &out.RepetitionWindow},
		{p.presence, &out.Presence, &out.PresenceWindow},
		{p.frequency, &out.Frequency, &out.FrequencyWindow},
	} {
		if !one.on {
			continue
		}
		*one.value, *one.window = one.penalty.value, one.penalty.window
		longest, whole = max(longest, one.penalty.window), whole || one.penalty.window == 0
	}
	out.History = d.history[max(0, len(d.history)-longest):]
	if whole {
		out.History = d.history
	}
	if g.logprobs != nil {
		top := int(g.logprobs.GetTop())
		out.Logprobs = &top
	}
	if d.generated() < g.minimum {
		out.Banned = g.stops
	}
	if p.strikes(out.Position) {
		out.XTC, out.Spared = &p.xtcThreshold, g.stops
	}
	return out
}
