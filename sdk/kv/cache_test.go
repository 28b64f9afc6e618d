package kv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/clademl/clade/sdk/mlx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func runtimeDir() string {
	if dir := os.Getenv("CLADE_RUNTIME"); dir != "" {
		return dir
	}
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "bin", "runtime", "cpu")
}

// onWorker runs fn with a scope and ends with no live array.
func onWorker(t *testing.T, fn func(s *mlx.Scope)) {
	t.Helper()
	require.NoError(t, onWorkerEnds(t, fn))
}

// onWorkerEnds is onWorker with the scope's error.
func onWorkerEnds(t *testing.T, fn func(s *mlx.Scope)) error {
	t.Helper()
	r, err := mlx.Open(runtimeDir())
	require.NoError(t, err, "run make setup")
	_, err = r.Kernels()
	require.NoError(t, err, "run make setup")
	w, err := r.NewWorker(mlx.CPU)
	require.NoError(t, err)
	ends := w.Do(context.Background(), func(s *mlx.Scope) error {
		fn(s)
		return s.Err()
	})
	require.NoError(t, w.Close())
	require.Zero(t, mlx.LiveHandles())
	return ends
}

const dim = 16 // the narrowest heads that the kernel takes

// attend feeds n tokens whose values are their own position, with equal keys: the answer of a query is the mean of the
// positions it sees.
func attend(t *testing.T, s *mlx.Scope, c *Cache, n int) []float32 {
	t.Helper()
	qkv := make([]float32, 3*dim*n)
	for i := range n {
		qkv[3*dim*i+2*dim] = float32(c.Offset() + i)
	}
	pass := c.Begin(n)
	out := pass.Attend(s, 0, mlx.FromSlice(s, qkv, 1, n, 3*dim), Attention{Heads: 1, Scale: 1})
	pass.End()
	got, err := mlx.ToSlice[float32](s, s.SliceAxis(out, -1, 0, 1))
	require.NoError(t, err)
	return got
}

// bothWays runs fn over the kernel and over stock operations.
func bothWays(t *testing.T, fn func(t *testing.T, kernels bool)) {
	t.Helper()
	for _, kernels := range []bool{true, false} {
		t.Run(fmt.Sprintf("kernels %v", kernels), func(t *testing.T) { fn(t, kernels) })
	}
}

func TestAQuerySeesItsWindowHoweverTokensAreCut(t *testing.T) {
	mean := func(position, window int) float64 {
		first := 0
		if window > 0 {
			first = max(0, position-window+1)
		}
		return float64(first+position) / 2
	}
	bothWays(t, func(t *testing.T, kernels bool) {
		for _, window := range []int{0, 1, 8, 300} {
			for _, cuts := range [][]int{{600}, {1, 1, 7, 8, 9, 250, 324}, {255, 1, 1, 255, 1, 87}} {
				onWorker(t, func(s *mlx.Scope) {
					c := New([]Spec{{Heads: 1, HeadDim: dim, Window: window}}, kernels)
					defer c.Close()
					position := 0
					for _, n := range cuts {
						for _, got := range attend(t, s, c, n) {
							require.InDelta(t, mean(position, window), got, 1e-3, "window %d, position %d", window, position)
							position++
						}
					}
					require.Equal(t, 600, c.Offset())
				})
			}
		}
	})
}

func TestACacheGrowsInSteps(t *testing.T) {
	bothWays(t, func(t *testing.T, kernels bool) {
		onWorker(t, func(s *mlx.Scope) {
			c := New([]Spec{{Heads: 1, HeadDim: dim}}, kernels)
			defer c.Close()
			require.Empty(t, c.Arrays())
			for _, step := range []struct{ tokens, capacity int }{{1, 256}, {255, 256}, {1, 512}, {600, 1024}} {
				attend(t, s, c, step.tokens)
				require.Equal(t, step.capacity, c.Arrays()[0].Dim(2))
				require.Equal(t, step.capacity, Capacity(c.Offset()))
			}
		})
	})
}

func TestBytesPerTokenCountKeysAndValues(t *testing.T) {
	require.EqualValues(t, 2*3*64*4, Spec{Heads: 3, HeadDim: 64}.BytesPerToken(mlx.Float32))
	require.EqualValues(t, 2*3*64*2, Spec{Heads: 3, HeadDim: 64}.BytesPerToken(mlx.BFloat16))
}

// What a rejected draft put there is written over: the answers are those of a cache that never held it.
func TestARewoundCacheIsAsIfTheTokensHadNeverCome(t *testing.T) {
	bothWays(t, func(t *testing.T, kernels bool) {
		onWorker(t, func(s *mlx.Scope) {
			c, straight := New([]Spec{{Heads: 1, HeadDim: dim, Window: 7}}, kernels), New([]Spec{{Heads: 1, HeadDim: dim, Window: 7}}, kernels)
			defer c.Close()
			defer straight.Close()
			attend(t, s, c, 254)
			attend(t, s, straight, 254)
			c.Mark()
			attend(t, s, c, 6) // beyond the buffer's first room
			require.Equal(t, 255, c.Rewind(255))
			require.Equal(t, 255, c.Offset())
			attend(t, s, straight, 1)
			require.Equal(t, attend(t, s, straight, 5), attend(t, s, c, 5))
			require.Equal(t, 260, c.Rewind(300), "nothing more than it holds")
		})
	})
}
