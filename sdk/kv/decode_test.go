package kv

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

const decoderInter = 96

// decoderLayers are two layers over heads like those of the other tests, and what frees them.
func decoderLayers(t *testing.T, s *mlx.Scope) ([]mlx.DecoderLayer, func()) {
	k := kernelsOf(t)
	var held []*mlx.Packed
	seed := 0.0
	values := func(n int, scale float64) []float32 {
		seed++
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(scale * math.Sin(seed+float64(i)*0.7+float64(i%17)))
		}
		return out
	}
	matrix := func(n, cols int) *mlx.Packed {
		w, err := k.NewDense(n, cols, mlx.Float32)
		require.NoError(t, err)
		var data []byte
		for _, v := range values(n*cols, 0.2) {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		require.NoError(t, w.SetDense(0, n, data))
		held = append(held, w)
		return w
	}
	out := make([]mlx.DecoderLayer, 2)
	for i := range out {
		out[i] = mlx.DecoderLayer{
			Q: matrix(group*wide, wide), K: matrix(wide, wide), V: matrix(wide, wide), O: matrix(wide, group*wide),
			Gate: matrix(decoderInter, wide), Up: matrix(decoderInter, wide), Down: matrix(wide, decoderInter),
			AttentionNorm: s.Keep(mlx.FromSlice(s, values(wide, 1))), MLPNorm: s.Keep(mlx.FromSlice(s, values(wide, 1))),
		}
	}
	return out, func() {
		for _, w := range held {
			w.Close()
		}
		for _, l := range out {
			l.AttentionNorm.Close()
			l.MLPNorm.Close()
		}
	}
}

// apart is what Decode stands for.
func apart(s *mlx.Scope, pass *Pass, layers []mlx.DecoderLayer, h *mlx.Array, a Attention) *mlx.Array {
	for i, l := range layers {
		qkv := s.PackedLinear(h, mlx.PackedLinear{Weights: []*mlx.Packed{l.Q, l.K, l.V}, Norm: l.AttentionNorm, Eps: 1e-5})
		h = s.PackedLinear(pass.Attend(s, i, qkv, a), mlx.PackedLinear{Weights: []*mlx.Packed{l.O}, Residual: h})
		act := s.PackedLinear(h, mlx.PackedLinear{Weights: []*mlx.Packed{l.Gate, l.Up}, Gate: mlx.SiLU, Norm: l.MLPNorm, Eps: 1e-5})
		h = s.PackedLinear(act, mlx.PackedLinear{Weights: []*mlx.Packed{l.Down}, Residual: h})
	}
	return h
}

// Floats and codes, buffers, rings with first tokens kept, blocks of a pool: a step through all layers at once gives the bits of the
// layers one by one, for one sequence and for several, and leaves the same caches.
func TestAStepThroughAllLayersIsTheLayersOneByOne(t *testing.T) {
	const start = 250
	attention := Attention{Heads: group, Scale: 0.125, QNorm: nn.RMSNorm{Eps: 1e-5}}
	for i, f := range []Format{formats[0], formats[1], formats[3], formats[5], late(formats[3], start+1)} {
		for _, spec := range []Spec{{Heads: 1, HeadDim: wide, Format: f}, {Heads: 1, HeadDim: wide, Window: 100, Keep: 2, Format: f}} {
			if spec.Window > 0 && i%2 == 1 {
				continue
			}
			onWorker(t, func(s *mlx.Scope) {
				what := fmt.Sprintf("%+v", spec)
				layers, free := decoderLayers(t, s)
				defer free()
				d := s.NewDecoder(layers, mlx.SiLU, 1e-5)
				defer d.Close()
				pool, specs := NewPool(100), []Spec{spec, spec}
				caches := []*Cache{New(specs, true), New(specs, true)} // one by one
				whole := []*Cache{pool.Cache(specs, true), New(specs, true)}
				run := func(at []int, n ...int) {
					var segments, other []Segment
					var in []float32
					for j, m := range n {
						c := caches[at[j]]
						segments, other = append(segments, Segment{Cache: c, Tokens: m}), append(other, Segment{Cache: whole[at[j]], Tokens: m})
						in = append(in, inputs(at[j], c.Offset(), m)[:m*wide]...)
					}
					p, q := Begin(segments...), Begin(other...)
					x := mlx.FromSlice(s, in, 1, p.Tokens(), wide)
					want, err := mlx.ToSlice[float32](s, apart(s, p, layers, x, attention))
					require.NoError(t, err)
					require.Equal(t, p.Tokens() <= mlx.DecoderRows, q.Whole(attention))
					var got []float32
					if q.Whole(attention) {
						got, err = mlx.ToSlice[float32](s, q.Decode(s, d, x, attention))
					} else {
						got, err = mlx.ToSlice[float32](s, apart(s, q, layers, x, attention))
					}
					require.NoError(t, err)
					p.End()
					q.End()
					near(t, want, got, 0, "%s", what)
					s.Sweep()
				}
				run([]int{0}, start)
				run([]int{1}, 40)
				for range 4 {
					run([]int{0, 1}, 1, 1)
					run([]int{1, 0}, 3, 5)
					run([]int{0}, 1)
				}
				for j := range caches {
					caches[j].Close()
					whole[j].Close()
				}
			})
		}
	}
}

// Adapters, many rows, bent scores and layers that are not alike are for the layers one by one.
func TestAPassThatIsNotWholeSaysSo(t *testing.T) {
	onWorker(t, func(*mlx.Scope) {
		a := Attention{Heads: group}
		plain := New(one(Format{}, 0, 0), true)
		require.True(t, plain.Begin(mlx.DecoderRows).Whole(a))
		require.False(t, plain.Begin(mlx.DecoderRows+1).Whole(a))
		require.False(t, New(one(Format{}, 0, 0), false).Begin(1).Whole(a))
		require.False(t, plain.Begin(1).Whole(Attention{Heads: group, Softcap: 30}))
		require.False(t, New(mixed(Format{}), true).Begin(1).Whole(a))
		adapted := New(one(Format{}, 0, 0), true)
		adapted.Adapt(nn.NewBoard(), nn.Stack{{LowRank: &nn.LowRank{}, Scale: 1}})
		require.False(t, adapted.Begin(1).Whole(a))
	})
}
