package mlx

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// deltaCase is a layer of two key heads and four value heads with its parameters.
func deltaCase(s *Scope) (GatedDelta, func(tokens int) *Array, func() (history, state *Array)) {
	wave := func(seed float64, shape ...int) *Array {
		n := 1
		for _, d := range shape {
			n *= d
		}
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(math.Sin(seed + 1.3*float64(i) + 0.01*float64(i%17)))
		}
		return FromSlice(s, out, shape...)
	}
	const channels, values = 2*2*32 + 4*16, 4 * 16
	d := GatedDelta{
		KeyHeads: 2, ValueHeads: 4, KeyDim: 32, ValueDim: 16, Taps: 4, Conv: wave(1, 4, channels), ALog: wave(2, 4), DtBias: wave(3, 4),
		Norm: wave(4, 16), Eps: 1e-6, LengthEps: 1e-6,
	}
	x := func(tokens int) *Array { return wave(5, 1, tokens, channels+values+8) }
	none := func() (*Array, *Array) {
		return s.Zeros([]int{1, 3, channels}, Float32), s.Zeros([]int{1, 4, 32, 16}, Float32)
	}
	return d, x, none
}

// A state that may be written is; another keeps its values, and results are the same.
func TestOnlyAStateThatMayBeIsWritten(t *testing.T) {
	testKernels(t)
	do(t, func(s *Scope) {
		d, x, none := deltaCase(s)
		history, state := none()
		require.NoError(t, s.Eval(history, state))
		_, first := s.GatedDelta(x(3), []Recurrent{{Tokens: 3, History: history, State: state}}, d)
		before := floats(t, s, first[0][0][1])
		require.Equal(t, make([]float32, len(before)), floats(t, s, state), "what was lent")
		y, second := s.GatedDelta(x(2), []Recurrent{{Tokens: 2, History: first[0][0][0], State: first[0][0][1]}}, d)
		want, after := floats(t, s, y), floats(t, s, second[0][0][1])
		require.Equal(t, before, floats(t, s, first[0][0][1]))
		y, own := s.GatedDelta(x(2), []Recurrent{{Tokens: 2, History: first[0][0][0], State: first[0][0][1], InPlace: true}}, d)
		require.Equal(t, want, floats(t, s, y))
		require.Equal(t, after, floats(t, s, own[0][0][1]))
		require.Equal(t, after, floats(t, s, first[0][0][1]), "the same memory")
	})
}

// Views, and the bits of each level and thread count.
func TestARecurrenceReadsArraysOfAnyStrides(t *testing.T) {
	k := testKernels(t)
	do(t, func(s *Scope) {
		d, x, none := deltaCase(s)
		history, state := none()
		run := func(d GatedDelta, x, history, state *Array) []float32 {
			y, _ := s.GatedDelta(x, []Recurrent{{Tokens: 40, History: history, State: state}}, d)
			return floats(t, s, y)
		}
		want := run(d, x(40), history, state)
		turned := func(a *Array) *Array {
			axes := make([]int, len(a.Shape()))
			for i := range axes {
				axes[i] = len(axes) - 1 - i
			}
			return s.Transpose(s.Contiguous(s.Transpose(a, axes...), false), axes...)
		}
		strided := d
		strided.Conv = turned(d.Conv)
		require.Equal(t, want, run(strided, turned(x(40)), turned(history), turned(state)))
		defer func() { require.NoError(t, k.SetLevel("")) }()
		for _, level := range k.Levels() {
			require.NoError(t, k.SetLevel(level))
			require.Equal(t, want, run(d, x(40), history, state), level)
		}
	})
}

func TestARecurrenceThatDoesNotFitIsRefused(t *testing.T) {
	testKernels(t)
	for message, spoil := range map[string]func(s *Scope, d *GatedDelta, q *Recurrent){
		"value heads must be a multiple": func(_ *Scope, d *GatedDelta, _ *Recurrent) { d.KeyHeads = 3 },
		"x must be":                      func(_ *Scope, _ *GatedDelta, q *Recurrent) { q.Tokens = 4 },
		"1 taps":                         func(_ *Scope, d *GatedDelta, _ *Recurrent) { d.Taps = 1 },
		"conv does not fit":              func(_ *Scope, d *GatedDelta, _ *Recurrent) { d.Taps = 3 },
		"a_log does not fit":             func(_ *Scope, d *GatedDelta, _ *Recurrent) { d.ALog = d.Norm },
		"the norm weight does not fit":   func(_ *Scope, d *GatedDelta, _ *Recurrent) { d.Norm = d.ALog },
		"a state does not fit":           func(_ *Scope, _ *GatedDelta, q *Recurrent) { q.State = q.History },
		"a state float32":                func(s *Scope, _ *GatedDelta, q *Recurrent) { q.State = s.AsType(q.State, BFloat16) },
		"behind row 5 of 5":              func(_ *Scope, _ *GatedDelta, q *Recurrent) { q.Keep = []int{2, 5} },
		"behind row 2 of 5":              func(_ *Scope, _ *GatedDelta, q *Recurrent) { q.Keep = []int{2, 2} },
		"-1 rows":                        func(_ *Scope, _ *GatedDelta, q *Recurrent) { q.Tokens = -1 },
	} {
		err := newTestWorker(t).Do(t.Context(), func(s *Scope) error {
			d, x, none := deltaCase(s)
			history, state := none()
			q := Recurrent{Tokens: 5, History: history, State: state}
			spoil(s, &d, &q)
			s.GatedDelta(x(5), []Recurrent{q}, d)
			return s.Err()
		})
		require.ErrorContains(t, err, message)
	}
}
