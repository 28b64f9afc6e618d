package kv

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// A small latent layer: rows of 16 rotating columns and a rank of 48.
const latentHeads, latentRank, latentPlain, latentRope, latentValue = 3, 48, 16, 16, 32

// latentWave is n values of a seed.
func latentWave(seed float64, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(math.Sin(seed + float64(i)*0.71 + float64(i%17)*1.3))
	}
	return out
}

// latentLayer is its attention, without positions; the arrays are the scope's.
func latentLayer(s *mlx.Scope, kernels bool) LatentAttention {
	matrix := func(seed float64, in, out int) nn.HeadLinear {
		return nn.HeadLinear{Weight: mlx.FromSlice(s, latentWave(seed, latentHeads*in*out), latentHeads, in, out), Kernel: kernels}
	}
	return LatentAttention{
		Attention: Attention{Heads: latentHeads, Scale: 0.1}, Keys: matrix(1, latentPlain, latentRank), Values: matrix(2, latentRank, latentValue),
	}
}

// latentTokens are the inputs of the tokens [first, first+n) of a sequence: queries and rows.
func latentTokens(sequence, first, n int) (q, row []float32) {
	for i := first; i < first+n; i++ {
		seed := float64(sequence*1000 + i)
		q = append(q, latentWave(seed*0.37, latentHeads*(latentPlain+latentRope))...)
		row = append(row, latentWave(seed*0.83+5, latentRank+latentRope)...)
	}
	return q, row
}

// attendLatents feeds the next tokens of each cache, one segment each.
func attendLatents(t *testing.T, s *mlx.Scope, kernels bool, caches []*Cache, sequences []int, n ...int) []float32 {
	t.Helper()
	var segments []Segment
	var q, row []float32
	for i, c := range caches {
		segments = append(segments, Segment{Cache: c, Tokens: n[i]})
		a, b := latentTokens(sequences[i], c.Offset(), n[i])
		q, row = append(q, a...), append(row, b...)
	}
	pass := Begin(segments...)
	o := pass.AttendLatent(s, 0, mlx.FromSlice(s, q, 1, pass.Tokens(), len(q)/pass.Tokens()), mlx.FromSlice(s, row, 1, pass.Tokens(), latentRank+latentRope), latentLayer(s, kernels))
	got, err := mlx.ToSlice[float32](s, o)
	require.NoError(t, err)
	pass.End()
	s.Sweep()
	return got
}

// expanded is the layer's plain definition for the last of n tokens: keys and values of every head are made of the latents.
func expanded(n int) []float32 {
	wk, wv := latentWave(1, latentHeads*latentPlain*latentRank), latentWave(2, latentHeads*latentRank*latentValue)
	q, _ := latentTokens(0, n-1, 1)
	_, rows := latentTokens(0, 0, n)
	out := make([]float32, latentHeads*latentValue)
	for h := range latentHeads {
		scores, top, total := make([]float64, n), math.Inf(-1), 0.0
		qh := q[h*(latentPlain+latentRope):]
		for t := range n {
			row := rows[t*(latentRank+latentRope):]
			for p := range latentPlain {
				key := 0.0
				for r := range latentRank {
					key += float64(wk[(h*latentPlain+p)*latentRank+r]) * float64(row[r])
				}
				scores[t] += float64(qh[p]) * key
			}
			for p := range latentRope {
				scores[t] += float64(qh[latentPlain+p]) * float64(row[latentRank+p])
			}
			scores[t] *= 0.1
			top = max(top, scores[t])
		}
		sum := make([]float64, latentRank)
		for t := range n {
			w := math.Exp(scores[t] - top)
			total += w
			for r := range latentRank {
				sum[r] += w * float64(rows[t*(latentRank+latentRope)+r])
			}
		}
		for v := range latentValue {
			value := 0.0
			for r := range latentRank {
				value += sum[r] / total * float64(wv[(h*latentRank+r)*latentValue+v])
			}
			out[h*latentValue+v] = float32(value)
		}
	}
	return out
}

// What is absorbed is what is expanded.
func TestLatentAttentionIsThatOfExpandedKeysAndValues(t *testing.T) {
	bothWays(t, func(t *testing.T, kernels bool) {
		onWorker(t, func(s *mlx.Scope) {
			c := New([]Spec{LatentSpec(latentRank, latentRope)}, kernels)
			defer c.Close()
			for _, n := range []int{1, 6, 250, 1, 30} {
				got := attendLatents(t, s, kernels, []*Cache{c}, []int{0}, n)
				want := expanded(c.Offset())
				for i, v := range got[len(got)-len(want):] {
					require.InDelta(t, want[i], v, 2e-4, "%d tokens", c.Offset())
				}
			}
		})
	})
}

// Bits do not depend on cuts, on other sequences, on blocks, or on having been copied, written and read.
func TestLatentsAreTheSameHoweverTheyCame(t *testing.T) {
	formats := []Format{{}, {Keys: Code{Kind: Float, DType: mlx.BFloat16}}, {Keys: Code{Kind: Affine, Bits: 8, Group: 32}}, {Keys: Code{Kind: Affine, Bits: 4, Group: 64}, Start: 100}, {Keys: Code{Kind: Turbo, Bits: 4}}}
	for _, f := range formats {
		f.Values = f.Keys
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			onWorker(t, func(s *mlx.Scope) {
				spec := LatentSpec(latentRank, latentRope)
				spec.Format = f
				specs := []Spec{spec}
				require.NoError(t, spec.Check())
				whole, pool := New(specs, true), NewPool(100)
				defer whole.Close()
				var want []float32
				feed := func(c *Cache, to int) (out []float32) {
					for c.Offset() < to {
						out = append(out, attendLatents(t, s, true, []*Cache{c}, []int{0}, Cut(specs, c.Offset(), to-c.Offset()))...)
					}
					return out
				}
				want = feed(whole, 300)

				cut, other, paged := New(specs, true), New(specs, true), pool.Cache(specs, true)
				defer cut.Close()
				defer other.Close()
				defer paged.Close()
				var got []float32
				for n := 0; n < 300; {
					m := Cut(specs, n, min(7, 300-n))
					rows := attendLatents(t, s, true, []*Cache{cut, other, paged}, []int{0, 3, 0}, m, 1, m)
					line := latentHeads * latentValue
					require.Equal(t, rows[:m*line], rows[(m+1)*line:], "in blocks")
					got, n = append(got, rows[:m*line]...), n+m
				}
				require.Equal(t, want, got)

				var pieces, blocks []Piece
				for from := 0; from < 300; from += Step {
					n := min(Step, 300-from)
					for _, c := range []*Cache{whole, paged} {
						r, err := c.Copy(s, from, from+n)
						require.NoError(t, err)
						defer r.Close()
						data, err := r.Encode(s)
						require.NoError(t, err)
						again, err := c.DecodeRun(s, mlx.Float32, data)
						require.NoError(t, err)
						defer again.Close()
						if c == whole {
							pieces = append(pieces, Piece{Run: again, Tokens: n})
						} else {
							blocks = append(blocks, Piece{Run: again, Tokens: n})
						}
					}
				}
				filled, shared := New(specs, true), pool.Cache(specs, true)
				defer filled.Close()
				defer shared.Close()
				require.NoError(t, filled.Fill(s, pieces))
				require.NoError(t, shared.Fill(s, blocks))
				next := feed(whole, 320)
				require.Equal(t, next, feed(filled, 320))
				require.Equal(t, next, feed(shared, 320))
				require.EqualValues(t, spec.BytesPerToken(mlx.Float32)*int64(Capacity(320)), bytesOf(whole))
			})
		})
	}
}

func bytesOf(c *Cache) (n int) {
	for _, a := range c.Arrays() {
		n += a.NBytes()
	}
	return n
}

func TestALatentThatCannotBeIsRefused(t *testing.T) {
	spec := LatentSpec(40, 8)
	require.Equal(t, 48, spec.HeadDim)
	spec.Format = Format{Keys: Code{Kind: Turbo, Bits: 8}, Values: Code{Kind: Turbo, Bits: 3}}
	require.ErrorContains(t, spec.Check(), "cannot be stored as two codes")
	spec = LatentSpec(40, 8)
	spec.Window = 10
	require.ErrorContains(t, spec.Check(), "no window")
	onWorker(t, func(s *mlx.Scope) {
		c := New([]Spec{LatentSpec(latentRank, latentRope)}, true)
		defer c.Close()
		attendLatents(t, s, true, []*Cache{c}, []int{0}, 3)
		_, err := c.Donor(s, 0)
		require.ErrorContains(t, err, "keeps latents")
	})
}
