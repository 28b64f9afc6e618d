package mlx

import (
	"context"
	"testing"
)

// BenchmarkOp is the cost of building one node and freeing it, nothing evaluated.
func BenchmarkOp(b *testing.B) {
	w := newTestWorker(b)
	b.ReportAllocs()
	_ = w.Do(context.Background(), func(s *Scope) error {
		x := FromSlice(s, make([]float32, 64), 8, 8)
		for i := 0; i < b.N; i++ {
			s.Add(x, x)
			if i%256 == 0 {
				s.Sweep(x)
			}
		}
		return s.Err()
	})
}

// BenchmarkReshape has an integer list as argument.
func BenchmarkReshape(b *testing.B) {
	w := newTestWorker(b)
	b.ReportAllocs()
	_ = w.Do(context.Background(), func(s *Scope) error {
		x := FromSlice(s, make([]float32, 64), 8, 8)
		for i := 0; i < b.N; i++ {
			s.Reshape(x, 4, 4, 4)
			if i%256 == 0 {
				s.Sweep(x)
			}
		}
		return s.Err()
	})
}

// BenchmarkSDPA has a mode string and optional arrays.
func BenchmarkSDPA(b *testing.B) {
	w := newTestWorker(b)
	b.ReportAllocs()
	_ = w.Do(context.Background(), func(s *Scope) error {
		x := FromSlice(s, make([]float32, 64), 1, 1, 8, 8)
		for i := 0; i < b.N; i++ {
			s.SDPA(x, x, x, 1, Causal(), nil)
			if i%64 == 0 {
				s.Sweep(x)
			}
		}
		return s.Err()
	})
}

// BenchmarkDo is the cost of a hop to the worker and back.
func BenchmarkDo(b *testing.B) {
	w := newTestWorker(b)
	for i := 0; i < b.N; i++ {
		_ = w.Do(context.Background(), func(*Scope) error { return nil })
	}
}
