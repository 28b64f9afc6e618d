package kv

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// deltaShapes: as wide as the kernel's vectors, narrower, and with several value heads a key head.
var deltaShapes = []DeltaShape{
	{KeyHeads: 2, ValueHeads: 4, KeyDim: 32, ValueDim: 32, Taps: 4},
	{KeyHeads: 1, ValueHeads: 3, KeyDim: 10, ValueDim: 21, Taps: 3},
	{KeyHeads: 1, ValueHeads: 2, KeyDim: 128, ValueDim: 128, Taps: 4},
}

// delta is a layer with random parameters, as arrays and as numbers.
type delta struct {
	GatedDelta
	conv, aLog, dtBias, norm []float32
}

func newDelta(s *mlx.Scope, shape DeltaShape) delta {
	rng := rand.New(rand.NewPCG(5, uint64(shape.KeyDim)))
	draw := func(n int, mean, deviation float64) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(mean + deviation*rng.NormFloat64())
		}
		return out
	}
	d := delta{
		conv: draw(shape.Taps*shape.Channels(), 0.2, 1), aLog: draw(shape.ValueHeads, 1, 0.8), dtBias: draw(shape.ValueHeads, -2, 1),
		norm: draw(shape.ValueDim, 1, 0.1),
	}
	d.GatedDelta = GatedDelta{
		DeltaShape: shape, Conv: mlx.FromSlice(s, d.conv, shape.Taps, shape.Channels()),
		ALog: mlx.FromSlice(s, d.aLog), DtBias: mlx.FromSlice(s, d.dtBias),
		Norm: nn.RMSNorm{Weight: mlx.FromSlice(s, d.norm), Eps: 1e-6},
	}
	return d
}

// inputs are the projections of n tokens of one sequence, from a position on.
func (d delta) inputs(sequence, first, n int) []float32 {
	var out []float32
	for t := first; t < first+n; t++ {
		rng := rand.New(rand.NewPCG(uint64(sequence), uint64(t)))
		for range d.Width() {
			out = append(out, float32(0.3+rng.NormFloat64()))
		}
	}
	return out
}

// forward runs the tokens through the pass and returns the results as numbers.
func (d delta) forward(t *testing.T, s *mlx.Scope, p *Pass, x []float32) []float32 {
	t.Helper()
	y := p.GatedDelta(s, 0, mlx.FromSlice(s, x, 1, p.Tokens(), d.Width()), d.GatedDelta)
	p.End()
	out, err := mlx.ToSlice[float32](s, y)
	require.NoError(t, err)
	return out
}

func (d delta) cache(kernels bool) *Cache { return New([]Spec{d.Spec()}, kernels) }

// reference is the doc comment of GatedDelta in plain float64, over all tokens of a sequence.
func (d delta) reference(x []float32) []float32 {
	sigmoid := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	tokens, width, channels := len(x)/d.Width(), d.Width(), d.Channels()
	states := make([][]float64, d.ValueHeads)
	for h := range states {
		states[h] = make([]float64, d.KeyDim*d.ValueDim)
	}
	var out []float32
	for t := range tokens {
		mixed := make([]float64, channels)
		for c := range mixed {
			for j := range d.Taps {
				if at := t - d.Taps + 1 + j; at >= 0 {
					mixed[c] += float64(d.conv[j*channels+c]) * float64(x[at*width+c])
				}
			}
			mixed[c] *= sigmoid(mixed[c])
		}
		unit := func(v []float64) []float64 {
			sum := lengthEps
			for _, e := range v {
				sum += e * e
			}
			out := slices.Clone(v)
			for i := range out {
				out[i] /= math.Sqrt(sum)
			}
			return out
		}
		rest := x[t*width+channels : (t+1)*width]
		for h := range d.ValueHeads {
			at := h / (d.ValueHeads / d.KeyHeads) * d.KeyDim
			q, k := unit(mixed[at:at+d.KeyDim]), unit(mixed[d.KeyHeads*d.KeyDim+at:][:d.KeyDim])
			v := mixed[2*d.KeyHeads*d.KeyDim+h*d.ValueDim:][:d.ValueDim]
			beta := sigmoid(float64(rest[d.Values()+h]))
			a := float64(rest[d.Values()+d.ValueHeads+h]) + float64(d.dtBias[h])
			g := math.Exp(-math.Exp(float64(d.aLog[h])) * math.Log1p(math.Exp(a)))
			state, y, square := states[h], make([]float64, d.ValueDim), 0.0
			for j := range d.ValueDim {
				known := 0.0
				for i := range d.KeyDim {
					state[i*d.ValueDim+j] *= g
					known += state[i*d.ValueDim+j] * k[i]
				}
				for i := range d.KeyDim {
					state[i*d.ValueDim+j] += k[i] * beta * (v[j] - known)
					y[j] += state[i*d.ValueDim+j] * q[i] / math.Sqrt(float64(d.KeyDim))
				}
				square += y[j] * y[j]
			}
			for j := range y {
				z := float64(rest[h*d.ValueDim+j])
				out = append(out, float32(y[j]/math.Sqrt(square/float64(d.ValueDim)+1e-6)*float64(d.norm[j])*z*sigmoid(z)))
			}
		}
	}
	return out
}

// nearly holds two results to 1e-5 of the largest value.
func nearly(t *testing.T, want, got []float32, what string) {
	t.Helper()
	require.Len(t, got, len(want))
	top := 0.0
	for _, v := range want {
		top = max(top, math.Abs(float64(v)))
	}
	for i := range want {
		require.InDelta(t, want[i], got[i], 1e-5*top, "%s: value %d", what, i)
	}
}

func TestTheRecurrenceIsItsDefinition(t *testing.T) {
	bothWays(t, func(t *testing.T, kernels bool) {
		for _, shape := range deltaShapes {
			onWorker(t, func(s *mlx.Scope) {
				d := newDelta(s, shape)
				c := d.cache(kernels)
				defer c.Close()
				x := d.inputs(1, 0, 70)
				nearly(t, d.reference(x), d.forward(t, s, c.Begin(70), x), fmt.Sprint(shape))
			})
		}
	})
}

// Chunked, whole and step by step: to rounding on the graph, in every bit on the kernels.
func TestTheRecurrenceDoesNotDependOnHowTokensAreCut(t *testing.T) {
	bothWays(t, func(t *testing.T, kernels bool) {
		for _, shape := range deltaShapes {
			onWorker(t, func(s *mlx.Scope) {
				d := newDelta(s, shape)
				run := func(cuts ...int) []float32 {
					c := d.cache(kernels)
					defer c.Close()
					var out []float32
					for _, n := range cuts {
						out = append(out, d.forward(t, s, c.Begin(n), d.inputs(1, c.Offset(), n))...)
					}
					return out
				}
				whole := run(50)
				for _, cuts := range [][]int{slices.Repeat([]int{1}, 50), {16, 16, 16, 2}, {1, 2, 47}, {49, 1}} {
					got := run(cuts...)
					if kernels {
						require.Equal(t, whole, got, "%v", cuts)
					} else {
						nearly(t, whole, got, fmt.Sprint(cuts))
					}
				}
			})
		}
	})
}

func TestStatesOfOnePassDoNotSeeEachOther(t *testing.T) {
	bothWays(t, func(t *testing.T, kernels bool) {
		onWorker(t, func(s *mlx.Scope) {
			d := newDelta(s, deltaShapes[0])
			var together, alone [3]*Cache
			for i := range together {
				together[i], alone[i] = d.cache(kernels), d.cache(kernels)
				defer together[i].Close()
				defer alone[i].Close()
			}
			for _, step := range [][]int{{7, 1, 30}, {1, 0, 1}, {1, 25, 1}, {4, 1, 1}} {
				var segments []Segment
				var x, want []float32
				for i, n := range step {
					if n > 0 {
						own := d.inputs(i, alone[i].Offset(), n)
						segments, x = append(segments, Segment{Cache: together[i], Tokens: n}), append(x, own...)
						want = append(want, d.forward(t, s, alone[i].Begin(n), own)...)
					}
				}
				require.Equal(t, want, d.forward(t, s, Begin(segments...), x))
			}
		})
	})
}

// A run that was copied where it ends goes on as the cache it came of; both go on from the same arrays, and neither sees the other.
func TestACopiedStateGoesOnAsTheOneItCameOf(t *testing.T) {
	bothWays(t, func(t *testing.T, kernels bool) {
		onWorker(t, func(s *mlx.Scope) {
			d := newDelta(s, deltaShapes[0])
			first, second, other := d.cache(kernels), d.cache(kernels), d.cache(kernels)
			defer first.Close()
			defer second.Close()
			defer other.Close()
			d.forward(t, s, first.Begin(20), d.inputs(1, 0, 20))
			run, err := first.Copy(s, 0, 20)
			require.NoError(t, err)
			defer run.Close()
			require.Equal(t, d.Spec().StateBytes(mlx.Float32), run.Bytes())
			data, err := run.Encode(s)
			require.NoError(t, err)
			stored, err := other.DecodeRun(s, mlx.Float32, data)
			require.NoError(t, err)
			defer stored.Close()

			require.NoError(t, second.Fill(s, []Piece{{Run: run, Tokens: 20}}))
			require.NoError(t, other.Fill(s, []Piece{{Run: stored, Tokens: 20}}))
			want := d.forward(t, s, first.Begin(9), d.inputs(1, 20, 9))
			d.forward(t, s, second.Begin(3), d.inputs(2, 20, 3)) // another text
			second.Close()
			require.NoError(t, second.Fill(s, []Piece{{Run: run, Tokens: 20}}))
			require.Equal(t, want, d.forward(t, s, second.Begin(9), d.inputs(1, 20, 9)))
			require.Equal(t, want, d.forward(t, s, other.Begin(9), d.inputs(1, 20, 9)))

			_, n := d.cache(kernels).Usable([]Piece{{Run: run, Tokens: 19}})
			require.Zero(t, n, "a state is of its last token alone")
		})
	})
}

// What was drafted and rejected leaves nothing: the state returns to its mark, and the rest comes again.
func TestARewoundStateIsThatOfItsMark(t *testing.T) {
	bothWays(t, func(t *testing.T, kernels bool) {
		onWorker(t, func(s *mlx.Scope) {
			d := newDelta(s, deltaShapes[0])
			c, straight := d.cache(kernels), d.cache(kernels)
			defer c.Close()
			defer straight.Close()
			c.Mark()
			d.forward(t, s, c.Begin(3), d.inputs(9, 0, 3))
			require.Zero(t, c.Rewind(1), "the beginning was marked")
			d.forward(t, s, c.Begin(10), d.inputs(1, 0, 10))
			d.forward(t, s, straight.Begin(10), d.inputs(1, 0, 10))
			for range 2 {
				c.Mark()
				d.forward(t, s, c.Begin(5), d.inputs(9, 10, 5))
				require.Equal(t, 10, c.Rewind(12), "two of five tokens were right")
				require.Equal(t, 10, c.Offset())
			}
			want := d.forward(t, s, straight.Begin(4), d.inputs(1, 10, 4))
			require.Equal(t, want, d.forward(t, s, c.Begin(4), d.inputs(1, 10, 4)))
			require.Equal(t, 14, c.Rewind(14), "all of them stay")
			want = d.forward(t, s, straight.Begin(1), d.inputs(1, 14, 1))
			require.Equal(t, want, d.forward(t, s, c.Begin(1), d.inputs(1, 14, 1)))
			c.Close()
			d.forward(t, s, c.Begin(2), d.inputs(1, 0, 2))
			require.Zero(t, c.Rewind(1), "without a mark it begins anew")
		})
	})
}

// States behind tokens within a pass are those of passes that ended there, also when later ones follow in the same pass.
func TestStatesAreKeptOnTheWay(t *testing.T) {
	bothWays(t, func(t *testing.T, kernels bool) {
		onWorker(t, func(s *mlx.Scope) {
			d := newDelta(s, deltaShapes[0])
			c, other := d.cache(kernels), d.cache(kernels)
			defer c.Close()
			defer other.Close()
			d.forward(t, s, c.Begin(5), d.inputs(1, 0, 5))
			segments := []Segment{{Cache: other, Tokens: 1}, {Cache: c, Tokens: 20, Keep: []int{1, 13}}}
			d.forward(t, s, Begin(segments...), slices.Concat(d.inputs(2, 0, 1), d.inputs(1, 5, 20)))
			for _, at := range []int{6, 18, 25} {
				run, err := c.Copy(s, 0, at)
				require.NoError(t, err)
				again, straight := d.cache(kernels), d.cache(kernels)
				require.NoError(t, again.Fill(s, []Piece{{Run: run, Tokens: at}}), "%d", at)
				run.Close()
				d.forward(t, s, straight.Begin(at), d.inputs(1, 0, at))
				want := d.forward(t, s, straight.Begin(3), d.inputs(1, at, 3))
				got := d.forward(t, s, again.Begin(3), d.inputs(1, at, 3))
				if kernels {
					require.Equal(t, want, got)
				} else {
					nearly(t, want, got, "behind a kept state")
				}
				again.Close()
				straight.Close()
			}
			run, err := c.Copy(s, 0, 7)
			require.NoError(t, err)
			require.Zero(t, run.Bytes(), "nothing was kept there")
			run.Close()
		})
	})
}
