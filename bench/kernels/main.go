// Command kernels times each kernel of libcladekernels alone, for the bench: JSON lines on stdout.
//
//	kernels -runtime DIR -threads N -repeats 5
//
// An operation is timed as one of several that are evaluated together, each on weights or caches of its own, so that neither
// the evaluation's own cost nor a cache that holds everything makes it look better or worse than in a model. The shapes are those
// of the 0.6B model of the bench. Not for: parity, which sdk/mlx tests.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/clademl/clade/sdk/mlx"
)

// copies of an operation are evaluated together.
const copies = 8

// result is one kernel on one shape.
type result struct {
	Name string `json:"name"`
	// Microseconds of one operation in each repeat, ascending.
	Microseconds []float64 `json:"microseconds"`
	// Bytes of weights, keys and values that it reads; Flops that it computes.
	Bytes float64 `json:"bytes"`
	Flops float64 `json:"flops"`
}

func main() {
	dir := flag.String("runtime", "bin/runtime/cpu", "the runtime")
	threads := flag.Int("threads", 2, "threads")
	repeats := flag.Int("repeats", 5, "repeats")
	flag.Parse()
	if err := run(*dir, *threads, *repeats); err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(1)
	}
}

func run(dir string, threads, repeats int) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	r, err := mlx.Open(dir)
	if err != nil {
		return err
	}
	k, err := r.Kernels()
	if err != nil {
		return err
	}
	if err := k.SetThreads(threads); err != nil {
		return err
	}
	w, err := r.NewWorker(mlx.CPU)
	if err != nil {
		return err
	}
	b := bench{kernels: k, worker: w, repeats: repeats, out: json.NewEncoder(os.Stdout)}
	if err := errors.Join(b.sample(), b.step()); err != nil {
		return err
	}
	for _, rows := range []int{1, 4, 16, 512} {
		for _, l := range []linear{
			{"qkv", 4096, 1024, mlx.NoGate, 1},
			{"output", 1024, 2048, mlx.NoGate, 1},
			{"gate-up", 3072, 1024, mlx.SiLU, 2},
			{"down", 1024, 3072, mlx.NoGate, 1},
		} {
			for _, f := range []format{{4, false}, {8, false}, {0, false}, {4, true}, {8, true}} {
				if err := b.linear(l, f, rows); err != nil {
					return err
				}
			}
		}
	}
	for _, context := range []int{16, 2048, 8192} {
		if err := b.attend(context, 1); err != nil {
			return err
		}
	}
	if err := b.attend(0, 512); err != nil {
		return err
	}
	for _, rows := range []int{1, 512} {
		if err := errors.Join(b.delta(rows, true), b.delta(rows, false)); err != nil {
			return err
		}
	}
	return w.Close()
}

type bench struct {
	kernels *mlx.Kernels
	worker  *mlx.Worker
	repeats int
	out     *json.Encoder
}

// format is how a weight is stored, and whether products round activations to 8 bits (kernels=fast).
type format struct {
	bits int // affine, groups of 64; 0: bfloat16
	int8 bool
}

func (f format) String() string {
	switch {
	case f.bits == 0:
		return "bf16"
	case f.int8:
		return fmt.Sprintf("q%d-g64-int8", f.bits)
	}
	return fmt.Sprintf("q%d-g64", f.bits)
}

type linear struct {
	name       string
	rows, cols int
	gate       mlx.Gate
	weights    int
}

func (b bench) linear(l linear, f format, rows int) error {
	return b.worker.Do(context.Background(), func(s *mlx.Scope) error {
		var held []*mlx.Packed
		defer func() {
			for _, p := range held {
				p.Close()
			}
		}()
		perValue := 2.0
		for range copies * l.weights {
			p, err := b.weight(l.rows, l.cols, f.bits)
			if err != nil {
				return err
			}
			held = append(held, p)
			if err := p.SetInt8(f.int8); err != nil {
				return err
			}
		}
		if f.bits > 0 {
			perValue = float64(f.bits)/8 + 4.0/64
		}
		x := s.Full([]int{1, rows, l.cols}, s.Scalar(0.5, mlx.Float32), mlx.Float32)
		values := float64(l.weights * l.rows * l.cols)
		return b.time(s, result{
			Name: fmt.Sprintf("linear/%s/%s/rows%d", l.name, f, rows), Bytes: values * perValue, Flops: 2 * values * float64(rows),
		}, func(s *mlx.Scope, i int) *mlx.Array {
			return s.PackedLinear(x, mlx.PackedLinear{Weights: held[i*l.weights : (i+1)*l.weights], Gate: l.gate})
		})
	})
}

// weight is a packed matrix whose every value is near 0.01.
func (b bench) weight(rows, cols, bits int) (*mlx.Packed, error) {
	fill := func(n int, v uint16) []byte {
		out := make([]byte, 2*n)
		for i := range n {
			out[2*i], out[2*i+1] = byte(v), byte(v>>8)
		}
		return out
	}
	if bits == 0 {
		p, err := b.kernels.NewDense(rows, cols, mlx.BFloat16)
		if err != nil {
			return nil, err
		}
		return p, p.SetDense(0, rows, fill(rows*cols, 0x3c24))
	}
	p, err := b.kernels.NewAffine(rows, cols, mlx.Affine{Bits: bits, Group: 64, Scale: mlx.BFloat16})
	if err != nil {
		return nil, err
	}
	codes := make([]byte, rows*cols*bits/8)
	for i := range codes {
		codes[i] = byte(i * 151)
	}
	return p, p.SetAffine(0, rows, codes, fill(rows*cols/64, 0x3a80), fill(rows*cols/64, 0xbb80))
}

// attend is one layer's attention of rows queries behind offset tokens, float32 caches.
func (b bench) attend(offset, rows int) error {
	const heads, kvHeads, dim = 16, 8, 128
	capacity := (offset + rows + 255) / 256 * 256
	return b.worker.Do(context.Background(), func(s *mlx.Scope) error {
		value := s.Scalar(0.1, mlx.Float32)
		qkv := s.Full([]int{1, rows, (heads + 2*kvHeads) * dim}, value, mlx.Float32)
		inv := s.Full([]int{dim / 2}, value, mlx.Float32)
		caches := make([][2]*mlx.Array, copies)
		for i := range caches {
			shape := []int{1, kvHeads, capacity, dim}
			caches[i] = [2]*mlx.Array{s.Keep(s.Full(shape, value, mlx.Float32)), s.Keep(s.Full(shape, value, mlx.Float32))}
			if err := s.Eval(caches[i][0], caches[i][1]); err != nil {
				return err
			}
		}
		defer func() {
			for _, c := range caches {
				c[0].Close()
				c[1].Close()
			}
		}()
		seen := float64(rows) * (float64(offset) + float64(rows+1)/2)
		return b.time(s, result{
			Name: fmt.Sprintf("attend/context%d/rows%d", offset, rows), Bytes: float64((offset + rows) * kvHeads * dim * 2 * 4),
			Flops: 4 * seen * heads * dim,
		}, func(s *mlx.Scope, i int) *mlx.Array {
			out, keys, values := s.PackedAttend(qkv, caches[i][0], caches[i][1], mlx.PackedAttention{
				Heads: heads, KVHeads: kvHeads, HeadDim: dim, RopeDims: dim, RopeScale: 1, RopeMScale: 1, InvFreq: inv,
				Scale: 0.088, Offset: offset,
			})
			caches[i][0].Close()
			caches[i][1].Close()
			caches[i] = [2]*mlx.Array{s.Keep(keys), s.Keep(values)}
			return out
		})
	})
}

// time evaluates all copies together, repeats times after a warm-up.
func (b bench) time(s *mlx.Scope, r result, op func(s *mlx.Scope, i int) *mlx.Array) error {
	return b.times(s, copies, r, op)
}

func (b bench) times(s *mlx.Scope, n int, r result, op func(s *mlx.Scope, i int) *mlx.Array) error {
	for repeat := range b.repeats + 1 {
		child := s.Child()
		outs := make([]*mlx.Array, n)
		start := time.Now()
		for i := range outs {
			outs[i] = op(child, i)
		}
		err := child.Eval(outs...)
		took := time.Since(start)
		child.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		if repeat > 0 {
			r.Microseconds = append(r.Microseconds, float64(took.Nanoseconds())/1e3/float64(n))
		}
	}
	sort.Float64s(r.Microseconds)
	return b.out.Encode(r)
}
