package mlx

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// expertsCase is a mixture and its float64 reference.
type expertsCase struct {
	experts, topK, in, width int
	normalize                bool
	x, logits                []float32
	gate, up, down           []float32 // row-major, expert by expert
}

func (c expertsCase) picks(row int) (experts []int, scores []float64) {
	logits := c.logits[row*c.experts : (row+1)*c.experts]
	var sum float64
	order := make([]int, c.experts)
	p := make([]float64, c.experts)
	for i, v := range logits {
		order[i], p[i] = i, math.Exp(float64(v))
		sum += p[i]
	}
	// Of equals the higher number: MLX's argpartition.
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(logits[b], logits[a]), b-a) })
	experts = order[:c.topK]
	var total float64
	for _, e := range experts {
		scores = append(scores, p[e]/sum)
		total += p[e] / sum
	}
	for i := range scores {
		if c.normalize {
			scores[i] /= total
		}
	}
	return experts, scores
}

func (c expertsCase) want(row int) []float64 {
	out := make([]float64, c.in)
	x := c.x[row*c.in : (row+1)*c.in]
	experts, scores := c.picks(row)
	for i, e := range experts {
		hidden := make([]float64, c.width)
		for w := range hidden {
			var g, u float64
			for j, v := range x {
				g += float64(v) * float64(c.gate[(e*c.width+w)*c.in+j])
				u += float64(v) * float64(c.up[(e*c.width+w)*c.in+j])
			}
			hidden[w] = g / (1 + math.Exp(-g)) * u
		}
		for j := range out {
			for w, v := range hidden {
				out[j] += scores[i] * v * float64(c.down[(e*c.in+j)*c.width+w])
			}
		}
	}
	return out
}

// TestExpertsAreTheirEquation on dense and quantized weights, with ties of the router, for 8 to 64 experts; and a row has the bits that
// it has alone, whatever the batch, the threads and the instructions.
func TestExpertsAreTheirEquation(t *testing.T) {
	k := testKernels(t)
	const rows, in, width = 33, 64, 32
	for _, c := range []expertsCase{{experts: 8, topK: 2, normalize: true}, {experts: 16, topK: 5}, {experts: 64, topK: 8, normalize: true}} {
		c.in, c.width = in, width
		c.x, c.logits = normals(50, rows*in, 1), normals(51, rows*c.experts, 1)
		for i := range c.logits {
			c.logits[i] = float32(math.Round(float64(c.logits[i])*2) / 2) // many ties
		}
		for _, bits := range []int{0, 4, 8} {
			do(t, func(s *Scope) {
				pack := func(seed uint64, n, cols int) (*Packed, []float32) {
					values := FromSlice(s, normals(seed, n*cols, 0.2), n, cols)
					if bits > 0 {
						p, wide := packAffine(t, s, k, values, bits, 32)
						return p, floats(t, s, wide)
					}
					p, err := k.NewDense(n, cols, Float32)
					require.NoError(t, err)
					data, err := Bytes(s, values)
					require.NoError(t, err)
					require.NoError(t, p.SetDense(0, n, data))
					return p, floats(t, s, values)
				}
				var gate, up, down *Packed
				gate, c.gate = pack(52, c.experts*width, in)
				up, c.up = pack(53, c.experts*width, in)
				down, c.down = pack(54, c.experts*in, width)
				defer gate.Close()
				defer up.Close()
				defer down.Close()
				run := func(first, n int) []float32 {
					x, logits := FromSlice(s, c.x[first*in:(first+n)*in], n, in), FromSlice(s, c.logits[first*c.experts:(first+n)*c.experts], n, c.experts)
					return floats(t, s, s.PackedExperts(x, logits, PackedExperts{
						Gate: gate, Up: up, Down: down, Experts: c.experts, TopK: c.topK, Normalize: c.normalize,
					}))
				}
				all := run(0, rows)
				for r := range rows {
					for j, want := range c.want(r) {
						require.InDelta(t, want, all[r*in+j], 2e-5, "%d experts, %d bits, row %d", c.experts, bits, r)
					}
				}
				for _, level := range k.Levels() {
					require.NoError(t, k.SetLevel(level))
					for _, threads := range []int{1, 2} {
						require.NoError(t, k.SetThreads(threads))
						for _, n := range []int{1, 2, 7, 8, 32} {
							require.Equal(t, all[:n*in], run(0, n), "%s, %d threads, %d rows", level, threads, n)
						}
						require.Equal(t, all[20*in:21*in], run(20, 1))
					}
				}
				require.NoError(t, k.SetLevel(""))
			})
		}
	}
}

func TestExpertsThatDoNotFitAreRefused(t *testing.T) {
	k := testKernels(t)
	do(t, func(s *Scope) {
		dense := func(n, cols int) *Packed { return packDense(t, s, k, s.Zeros([]int{n, cols}, Float32), Float32) }
		w, down, narrow, odd := dense(4*32, 64), dense(4*64, 32), dense(4*24, 64), dense(4*64, 24)
		for _, p := range []*Packed{w, down, narrow, odd} {
			defer p.Close()
		}
		for name, e := range map[string]PackedExperts{
			"5 of 4 experts":         {Gate: w, Up: w, Down: down, Experts: 4, TopK: 5},
			"0 of 4 experts":         {Gate: w, Up: w, Down: down, Experts: 4},
			"not those of 3 experts": {Gate: w, Up: w, Down: down, Experts: 3, TopK: 1},
			"not those of 4 experts": {Gate: w, Up: narrow, Down: down, Experts: 4, TopK: 1},
			"no whole panels":        {Gate: narrow, Up: narrow, Down: odd, Experts: 4, TopK: 1},
			"is closed":              {Gate: w, Up: w, Experts: 4, TopK: 1},
		} {
			err := newTestWorker(t).Do(t.Context(), func(s *Scope) error {
				s.PackedExperts(s.Zeros([]int{3, 64}, Float32), s.Zeros([]int{3, 4}, Float32), e)
				return s.Err()
			})
			require.ErrorContains(t, err, name)
		}
	})
}
