package dense

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights"
)

// An op of a graph costs MLX on the CPU microseconds, and a decode step is short: on the kernels a layer is five nodes (projections
// with their norm; rotation, cache write and attention; output with the residual; gate, up and activation with their norm; down with the
// residual), which return seven arrays, for attention hands its two caches back. Around the layers stand gather and dequantization in
// one, the norm, and the logits in one.
func TestALayerOfADecodeStepIsFiveNodes(t *testing.T) {
	r := openRuntime(t)
	k, err := r.Kernels()
	require.NoError(t, err)
	const arrays, around = 7, 8
	for _, name := range []string{"llama-f32", "llama-affine4", "llama-gguf-q4_k_m.gguf"} {
		w, err := r.NewWorker(mlx.CPU)
		require.NoError(t, err)
		require.NoError(t, w.Do(context.Background(), func(s *mlx.Scope) error {
			a, err := artifact.Open(tinyPaths[name])
			require.NoError(t, err)
			defer func() { require.NoError(t, a.Close()) }()
			c := readConfig(t, a)
			set, err := Match(a, &c)
			require.NoError(t, err)
			tensors, err := set.Load(context.Background(), s, weights.Target{DType: mlx.Float32, Kernels: k}, func(weights.Progress) {})
			require.NoError(t, err)
			m := New(s, c, tensors, mlx.Float32)
			defer m.Close()
			cache := kv.New(c.Caches(), true)
			defer cache.Close()
			step := func() int64 {
				before := mlx.LiveHandles()
				pass := cache.Begin(1)
				logits := m.Unembed(s, m.Forward(s, mlx.FromSlice(s, []int32{1}, 1, 1), pass))
				pass.End()
				made := mlx.LiveHandles() - before
				require.NoError(t, s.Eval(append(cache.Arrays(), logits)...))
				return made
			}
			step() // makes the caches
			require.LessOrEqual(t, step(), int64(c.Layers*arrays+around), "%s, %d layers", name, c.Layers)
			return nil
		}))
		require.NoError(t, w.Close())
	}
}
