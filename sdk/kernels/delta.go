package kernels

import (
	"math"

	"github.com/clademl/clade/sdk/mlx"
)

// GatedDelta is a gated delta network behind its projections, for a step of several sequences.
var GatedDelta = Kernel{
	Name: "gated-delta",
	Signature: "x [1, T, q k v | z | b | a] of all sequences, the last inputs of the convolution and the state [value_heads, key_dim, value_dim] f32 " +
		"of each -> [1, T, value_heads value_dim], and both behind it; no result depends on how a sequence is cut",
	Devices:  []string{"cpu"},
	Fallback: "MLX's conv1d and rms_norm, and the recurrence token by token in its operations, once for each sequence",
}

// testGatedDelta compares two sequences, the second behind a state, with the recurrence in MLX's operations.
func testGatedDelta(s *mlx.Scope, _ *mlx.Kernels) error {
	const keyDim, valueDim, heads, taps, rows = 16, 32, 2, 3, 5 // one key head
	const channels, values, lengthEps, eps = 2*keyDim + heads*valueDim, heads * valueDim, 1e-6, 1e-5
	conv, aLog, dtBias, norm := wave(s, 1, taps, channels), wave(s, 2, heads), wave(s, 3, heads), wave(s, 4, valueDim)
	x := wave(s, 5, 1, 2*rows, channels+values+2*heads)
	history, state := wave(s, 6, 1, taps-1, channels), wave(s, 7, 1, heads, keyDim, valueDim)
	none, empty := s.Zeros(history.Shape(), mlx.Float32), s.Zeros(state.Shape(), mlx.Float32)
	got, after := s.GatedDelta(x, []mlx.Recurrent{
		{Tokens: rows, History: none, State: empty, InPlace: true}, {Tokens: rows, History: history, State: state, Keep: []int{2}},
	}, mlx.GatedDelta{
		KeyHeads: 1, ValueHeads: heads, KeyDim: keyDim, ValueDim: valueDim, Taps: taps,
		Conv: conv, ALog: aLog, DtBias: dtBias, Norm: norm, Eps: eps, LengthEps: lengthEps,
	})

	// one goes on from a history and a state, and returns the results, the inputs with their history and the states behind each token.
	one := func(x, history, state *mlx.Array) (*mlx.Array, *mlx.Array, []*mlx.Array) {
		input := s.Concat(1, history, s.SliceAxis(x, -1, 0, channels))
		mixed := s.SiLU(s.Conv1d(input, s.ExpandDims(s.Transpose(conv), -1), 1, 0, 1, channels))
		unit := func(first int, scale float64) *mlx.Array {
			v := s.MulScalar(s.RMSNorm(s.SliceAxis(mixed, -1, first, first+keyDim), nil, lengthEps/keyDim), scale)
			return s.Reshape(v, rows, 1, keyDim, 1)
		}
		q, k := unit(0, 1.0/keyDim), unit(keyDim, 1/math.Sqrt(keyDim))
		v := s.Reshape(s.SliceAxis(mixed, -1, 2*keyDim, channels), rows, heads, 1, valueDim)
		part := func(first, n int) *mlx.Array { return s.SliceAxis(x, -1, first, first+n) }
		beta := s.Reshape(s.Sigmoid(part(channels+values, heads)), rows, heads, 1, 1)
		softplus := s.Logaddexp(s.Add(part(channels+values+heads, heads), dtBias), s.Scalar(0, mlx.Float32))
		decay := s.Reshape(s.Exp(s.Mul(s.Neg(s.Exp(aLog)), softplus)), rows, heads, 1, 1)
		at := func(a *mlx.Array, t int) *mlx.Array { return s.SliceAxis(a, 0, t, t+1) }
		var out, states []*mlx.Array
		for t := range rows {
			state = s.Mul(state, at(decay, t))
			change := s.Mul(s.Sub(at(v, t), s.Sum(s.Mul(state, at(k, t)), -2, true)), at(beta, t))
			state = s.Add(state, s.Mul(at(k, t), change))
			states = append(states, state)
			out = append(out, s.RMSNorm(s.Sum(s.Mul(state, at(q, t)), -2, false), norm, eps))
		}
		y := s.Reshape(s.Concat(0, out...), 1, rows, values)
		return s.Mul(y, s.SiLU(part(channels, values))), input, states
	}
	first, _, states1 := one(s.SliceAxis(x, 1, 0, rows), none, s.Zeros(state.Shape(), mlx.Float32))
	second, input, states2 := one(s.SliceAxis(x, 1, rows, 2*rows), history, state)
	for _, pair := range [][2]*mlx.Array{
		{got, s.Concat(1, first, second)},
		{after[0][0][1], states1[rows-1]},
		{after[1][0][0], s.SliceAxis(input, 1, 2, 2+taps-1)},
		{after[1][0][1], states2[1]},
		{after[1][1][0], s.SliceAxis(input, 1, rows, rows+taps-1)},
		{after[1][1][1], states2[rows-1]},
	} {
		if err := agree(s, pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}
