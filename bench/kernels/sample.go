package main

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/clademl/clade/sdk/mlx"
)

// widest is a vocabulary as large as any model's.
const widest = 262_144

// sample times a token's picking at the widest vocabulary, of scores spread more evenly than a model's: normal with deviation 3, so
// that top_p 0.95 leaves some 20,000.
func (b bench) sample() error {
	r := rand.New(rand.NewPCG(5, 5))
	rows := make([][]float32, copies)
	for i := range rows {
		rows[i] = make([]float32, widest)
		for j := range rows[i] {
			rows[i][j] = float32(3 * r.NormFloat64())
		}
	}
	history := make([]int32, 4096)
	for i := range history {
		history[i] = r.Int32N(widest)
	}
	allowed := make([]uint32, widest/32)
	for i := range allowed {
		allowed[i] = r.Uint32() & r.Uint32()
	}
	twenty, xtc := 20, 0.1
	plain := mlx.Sampling{Repetition: 1}
	noisy := mlx.Sampling{Repetition: 1, Temperature: 0.8, Seed: 1}
	filtered := mlx.Sampling{Repetition: 1, Temperature: 0.8, Seed: 1, TopP: 0.95, MinP: 0.02, TopK: 40}
	penalized := filtered
	penalized.Repetition, penalized.Presence, penalized.Frequency, penalized.History = 1.1, 0.2, 0.1, history
	told := plain
	told.Logprobs = &twenty
	masked := filtered
	masked.Allowed = allowed
	nucleus, typical, excluding := noisy, noisy, noisy
	nucleus.TopP, typical.TypicalP, excluding.XTC = 0.95, 0.9, &xtc
	for _, c := range []struct {
		name string
		how  mlx.Sampling
	}{
		{"greedy", plain},
		{"temperature", noisy},
		{"temperature-topp-minp-topk", filtered},
		{"penalties", penalized},
		{"logprobs", told},
		{"mask", masked},
		{"topp", nucleus},
		{"typical", typical},
		{"xtc", excluding},
	} {
		err := b.worker.Do(context.Background(), func(s *mlx.Scope) error {
			logits := make([]*mlx.Array, copies)
			for i := range logits {
				logits[i] = mlx.FromSlice(s, rows[i], 1, widest)
			}
			if err := s.Eval(logits...); err != nil {
				return err
			}
			return b.time(s, result{Name: "sample/262k/" + c.name, Bytes: widest * 4}, func(s *mlx.Scope, i int) *mlx.Array {
				tokens, _, _ := s.PackedSample(logits[i], []mlx.Sampling{c.how})
				return tokens
			})
		})
		if err != nil {
			return err
		}
	}
	return b.graph(rows)
}

// graph times what sampling costs without the kernel: the noise of every token and one sort.
func (b bench) graph(rows [][]float32) error {
	return b.worker.Do(context.Background(), func(s *mlx.Scope) error {
		logits := make([]*mlx.Array, copies)
		for i := range logits {
			logits[i] = mlx.FromSlice(s, rows[i], widest)
		}
		return b.time(s, result{Name: "sample/262k/argsort", Bytes: widest * 4}, func(s *mlx.Scope, i int) *mlx.Array {
			return s.ArgSort(logits[i], 0)
		})
	})
}

// step times a decode step of the 0.6B shape with the widest vocabulary, all of its matrices with 4 bits: what sampling is held
// against.
func (b bench) step() (err error) {
	const layers, hidden, perValue = 28, 1024, 4.0/8 + 4.0/64
	shapes := []linear{
		{"qkv", 4096, hidden, mlx.NoGate, 1},
		{"output", hidden, 2048, mlx.NoGate, 1},
		{"gate-up", 3072, hidden, mlx.SiLU, 2},
		{"down", hidden, 3072, mlx.NoGate, 1},
	}
	var held []*mlx.Packed
	defer func() {
		for _, p := range held {
			p.Close()
		}
	}()
	values := 0
	weight := func(rows, cols int) {
		p, failure := b.weight(rows, cols, 4)
		held, err, values = append(held, p), errors.Join(err, failure), values+rows*cols
	}
	for range layers {
		for _, l := range shapes {
			for range l.weights {
				weight(l.rows, l.cols)
			}
		}
	}
	weight(widest, hidden)
	if err != nil {
		return err
	}
	return b.worker.Do(context.Background(), func(s *mlx.Scope) error {
		r := result{Name: "step/0.6b-262k-q4", Bytes: float64(values) * perValue, Flops: 2 * float64(values)}
		x := s.Full([]int{1, 1, hidden}, s.Scalar(0.5, mlx.Float32), mlx.Float32)
		return b.times(s, 1, r, func(s *mlx.Scope, _ int) *mlx.Array {
			h, next := x, held
			for range layers {
				for _, l := range shapes {
					in := h
					if l.cols != hidden { // attention and the activation stand between: their width is all that matters here
						in = s.Concat(-1, append([]*mlx.Array{h}, repeat(h, l.cols/hidden-1)...)...)
					}
					out := s.PackedLinear(in, mlx.PackedLinear{Weights: next[:l.weights], Gate: l.gate})
					next = next[l.weights:]
					h = s.SliceAxis(out, -1, 0, hidden)
				}
			}
			return s.PackedLinear(h, mlx.PackedLinear{Weights: next})
		})
	})
}

func repeat(a *mlx.Array, n int) []*mlx.Array {
	out := make([]*mlx.Array, n)
	for i := range out {
		out[i] = a
	}
	return out
}
