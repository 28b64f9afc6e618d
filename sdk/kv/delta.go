package kv

import (
	"fmt"
	"math"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// DeltaShape is the size of a gated delta layer (Gated DeltaNet).
type DeltaShape struct {
	KeyHeads, ValueHeads int // value head h has the queries and keys of key head h / (ValueHeads/KeyHeads)
	KeyDim, ValueDim     int // of one head
	Taps                 int // of the convolution, the token's own included
}

// Channels is the width of queries, keys and values, which the convolution runs over.
func (d DeltaShape) Channels() int { return 2*d.KeyHeads*d.KeyDim + d.Values() }

// Values is the width of the layer's result.
func (d DeltaShape) Values() int { return d.ValueHeads * d.ValueDim }

// Width is that of a token's projections: channels, gates of the result, and two numbers for each value head.
func (d DeltaShape) Width() int { return d.Channels() + d.Values() + 2*d.ValueHeads }

// Spec is what such a layer keeps: the last inputs of the convolution, and a matrix for each value head.
func (d DeltaShape) Spec() Spec {
	return Spec{State: []Fixed{
		{Shape: []int{1, d.Taps - 1, d.Channels()}},
		{Shape: []int{1, d.ValueHeads, d.KeyDim, d.ValueDim}, Float32: true},
	}}
}

// GatedDelta is a layer of the gated delta rule. Of a token's projections (queries, keys and values; z; b; a) it makes, head by head,
//
//	q, k, v  = silu(convolution over the last Taps tokens), q and k of length 1, q divided by sqrt(KeyDim)
//	g, beta  = exp(-exp(ALog) softplus(a + DtBias)), sigmoid(b)
//	S        = g S
//	S        = S + k (beta (v - k S))
//	result   = Norm(q S) silu(z)
type GatedDelta struct {
	DeltaShape
	Conv         *mlx.Array // [Taps, Channels], in the compute dtype
	ALog, DtBias *mlx.Array // [ValueHeads]
	Norm         nn.RMSNorm // [ValueDim]
}

// The epsilon beside the squared length of a query or key.
const lengthEps = 1e-6

// GatedDelta takes the projections [1, T, Width] of layer i and returns [1, T, Values]: each sequence goes on from its own state.
func (p *Pass) GatedDelta(s *mlx.Scope, i int, x *mlx.Array, d GatedDelta) *mlx.Array {
	if want := []int{1, p.tokens, d.Width()}; s.Err() == nil && !slices.Equal(x.Shape(), want) {
		_ = s.Fail(fmt.Errorf("gated delta: layer %d got projections %v, not %v", i, x.Shape(), want))
	}
	if p.segments[0].Cache.kernels && mlx.Recurs() {
		return d.kernel(s, p.segments, i, x)
	}
	parts, first := make([]*mlx.Array, len(p.segments)), 0
	for j, g := range p.segments {
		part := x
		if len(p.segments) > 1 {
			part = s.SliceAxis(x, 1, first, first+g.Tokens)
		}
		parts[j] = d.recur(s, g, i, part)
		first += g.Tokens
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return s.Concat(1, parts...)
}

// kernel is GatedDelta of all sequences as one operation. A state that nothing else holds is written in place.
func (d GatedDelta) kernel(s *mlx.Scope, segments []Segment, i int, x *mlx.Array) *mlx.Array {
	layers, sequences := make([]*state, len(segments)), make([]mlx.Recurrent, len(segments))
	for j, g := range segments {
		layers[j] = g.Cache.state(s, i)
		if s.Err() != nil {
			return x
		}
		held, own := layers[j].lend(s, x.DType())
		sequences[j] = mlx.Recurrent{Tokens: g.Tokens, History: held[0], State: held[1], InPlace: own, Keep: g.Keep}
	}
	out, after := s.GatedDelta(x, sequences, mlx.GatedDelta{
		KeyHeads: d.KeyHeads, ValueHeads: d.ValueHeads, KeyDim: d.KeyDim, ValueDim: d.ValueDim, Taps: d.Taps,
		Conv: d.Conv, ALog: d.ALog, DtBias: d.DtBias, Norm: d.Norm.Weight, Eps: d.Norm.Eps, LengthEps: lengthEps,
	})
	for j, g := range segments {
		var kept []keptState
		for m, n := range g.Keep {
			kept = append(kept, keptState{g.Cache.offset + n, after[j][m][:]})
		}
		layers[j].giveBack(s, after[j][len(g.Keep)][:], kept)
	}
	return out
}

// recur is GatedDelta of one sequence in MLX's operations, those of mlx-lm 0.32.2 in their order.
func (d GatedDelta) recur(s *mlx.Scope, g Segment, i int, x *mlx.Array) *mlx.Array {
	l, tokens := g.Cache.state(s, i), g.Tokens
	if s.Err() != nil {
		return x
	}
	held, _ := l.lend(s, x.DType())
	channels, values := d.Channels(), d.Values()
	input := s.Concat(1, held[0], s.SliceAxis(x, -1, 0, channels)) // [1, Taps-1+T, Channels]
	taps := s.ExpandDims(s.Transpose(d.Conv), -1)                  // [Channels, Taps, 1]
	mixed := s.SiLU(s.Conv1d(input, taps, 1, 0, 1, channels))

	heads := func(y *mlx.Array, first, n, dim int) *mlx.Array {
		return s.Reshape(s.SliceAxis(y, -1, first, first+n*dim), 1, tokens, n, dim)
	}
	keys := d.KeyHeads * d.KeyDim
	q, k := d.unit(s, heads(mixed, 0, d.KeyHeads, d.KeyDim)), d.unit(s, heads(mixed, keys, d.KeyHeads, d.KeyDim))
	q = s.MulScalar(q, 1/float64(d.KeyDim))
	k = s.MulScalar(k, 1/math.Sqrt(float64(d.KeyDim)))
	v := heads(mixed, 2*keys, d.ValueHeads, d.ValueDim)
	z := heads(x, channels, d.ValueHeads, d.ValueDim)
	b := s.SliceAxis(x, -1, channels+values, channels+values+d.ValueHeads)
	a := s.SliceAxis(x, -1, channels+values+d.ValueHeads, d.Width())

	y, states := d.steps(s, q, k, v, d.decay(s, a), s.Sigmoid(b), held[1], tokens)
	behind := func(n int) []*mlx.Array {
		return []*mlx.Array{s.Contiguous(s.SliceAxis(input, 1, n, n+d.Taps-1), false), states[n-1]}
	}
	var kept []keptState
	for _, n := range g.Keep {
		kept = append(kept, keptState{g.Cache.offset + n, behind(n)})
	}
	l.giveBack(s, behind(tokens), kept)

	gate := s.SiLU(s.AsType(z, mlx.Float32))
	y = s.Mul(gate, s.AsType(d.Norm.Forward(s, y), mlx.Float32))
	return s.Reshape(s.AsType(y, x.DType()), 1, tokens, values)
}

// unit divides each head by its root mean square: the length that it should have, times sqrt(KeyDim).
func (d GatedDelta) unit(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	return s.RMSNorm(x, nil, float32(lengthEps/float64(d.KeyDim)))
}

// decay is what a token leaves of the state, float32 in (0, 1).
func (d GatedDelta) decay(s *mlx.Scope, a *mlx.Array) *mlx.Array {
	a = s.Add(a, d.DtBias)
	softplus := s.Logaddexp(a, s.Scalar(0, a.DType()))
	return s.Exp(s.Mul(s.Neg(s.Exp(s.AsType(d.ALog, mlx.Float32))), softplus))
}

// steps goes through the tokens one by one: q and k [1, T, KeyHeads, KeyDim], v [1, T, ValueHeads, ValueDim], g and beta
// [1, T, ValueHeads], state [1, ValueHeads, KeyDim, ValueDim]. It returns [1, T, ValueHeads, ValueDim] and the state behind each.
func (d GatedDelta) steps(s *mlx.Scope, q, k, v, g, beta, state *mlx.Array, tokens int) (y *mlx.Array, states []*mlx.Array) {
	if group := d.ValueHeads / d.KeyHeads; group > 1 {
		q, k = s.Repeat(q, group, -2), s.Repeat(k, group, -2)
	}
	row := func(x *mlx.Array, t int, shape ...int) *mlx.Array {
		return s.Reshape(s.SliceAxis(x, 1, t, t+1), shape...)
	}
	out, states := make([]*mlx.Array, tokens), make([]*mlx.Array, tokens)
	for t := range tokens {
		kt := row(k, t, 1, d.ValueHeads, d.KeyDim, 1)
		vt := row(v, t, 1, d.ValueHeads, 1, d.ValueDim)
		state = s.Mul(state, row(g, t, 1, d.ValueHeads, 1, 1))
		known := s.Sum(s.Mul(state, kt), -2, true)
		delta := s.Mul(s.Sub(vt, known), row(beta, t, 1, d.ValueHeads, 1, 1))
		state = s.Add(state, s.Mul(kt, delta))
		yt := s.Sum(s.Mul(state, row(q, t, 1, d.ValueHeads, d.KeyDim, 1)), -2, false)
		states[t] = state
		out[t] = s.Reshape(yt, 1, 1, d.ValueHeads, d.ValueDim)
	}
	return s.AsType(s.Concat(1, out...), q.DType()), states
}
