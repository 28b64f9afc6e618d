package qwen3

import (
	"context"
	"math"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

func embed(t *testing.T, e *engine.Engine, ids []int32, start *cladev1.EmbedStart) []float32 {
	t.Helper()
	r, err := e.Embed(context.Background(), &plugin.EmbedJob{Start: start, IDs: ids})
	require.NoError(t, err)
	require.EqualValues(t, len(ids), r.Usage.PromptTokens)
	return r.Values
}

// cosine of two vectors of any length.
func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+float64(a[i])*float64(b[i]), aa+float64(a[i])*float64(a[i]), bb+float64(b[i])*float64(b[i])
	}
	return ab / math.Sqrt(aa*bb)
}

func TestEmbeddingsEqualTheOraclesLastHiddenState(t *testing.T) {
	for _, g := range enginetest.Goldens(t, "../testdata/qwen3.json") {
		t.Run(g.Name, func(t *testing.T) {
			enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
				e := subject(g.Name, target, 16).Open(t)
				for length, encoded := range g.Embeddings {
					n, err := strconv.Atoi(length)
					require.NoError(t, err)
					want := enginetest.Row(t, encoded)
					got := embed(t, e, tiny.Prompt(n, g.Vocab), &cladev1.EmbedStart{})
					require.GreaterOrEqual(t, cosine(want, got), 1-1e-6, "prompt of %d", n)
					var length float64
					for _, v := range got {
						length += float64(v) * float64(v)
					}
					require.InDelta(t, 1, length, 1e-6)
					off := false
					raw := embed(t, e, tiny.Prompt(n, g.Vocab), &cladev1.EmbedStart{Normalize: &off})
					require.LessOrEqual(t, enginetest.Distance(want, raw), oracleBound)
				}
			})
		})
	}
}

func kernelTarget(t *testing.T) weights.Target {
	return weights.Target{DType: mlx.Float32, Kernels: enginetest.Kernels(t)}
}

// Alone, in chunks that leave one token over, and beside others that are embedded or generate: the same bits.
func TestAnEmbeddingDoesNotDependOnChunksAndNeighbours(t *testing.T) {
	texts := [][]int32{tiny.Prompt(1, 256), tiny.Prompt(33, 256), tiny.Prompt(16, 256), tiny.Prompt(100, 256), tiny.Prompt(200, 256)}
	for _, name := range []string{"qwen3-f32", "qwen3-affine4"} {
		s := subject(name, kernelTarget(t), 512)
		alone := s.Open(t)
		var want [][]float32
		for _, ids := range texts {
			want = append(want, embed(t, alone, ids, nil))
		}
		tokens := enginetest.Greedy(t, alone, tiny.Prompt(7, 256), 40)
		for _, chunk := range []int{16, 99} {
			s.Config = engine.Config{PrefillChunk: chunk, Rows: 6, Queue: 8}
			e := s.Open(t)
			var wg sync.WaitGroup
			got := make([][]float32, len(texts))
			wg.Go(func() { require.Equal(t, tokens, enginetest.Greedy(t, e, tiny.Prompt(7, 256), 40)) })
			for i, ids := range texts {
				wg.Go(func() { got[i] = embed(t, e, ids, nil) })
			}
			wg.Wait()
			require.Equal(t, want, got, "%s, chunk %d", name, chunk)
		}
	}
}

func TestEmbeddingIsRefusedAndCancelledByName(t *testing.T) {
	e := subject("qwen3-f32", kernelTarget(t), 16).Open(t)
	for _, ids := range [][]int32{nil, {-1}, {256}} {
		_, err := e.Embed(t.Context(), &plugin.EmbedJob{IDs: ids})
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), "%v", ids)
	}
	_, err := e.Embed(t.Context(), &plugin.EmbedJob{IDs: tiny.Prompt(513, 256)})
	require.Equal(t, contract.ContextTooLong, contract.KindOf(err))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = e.Embed(ctx, &plugin.EmbedJob{IDs: tiny.Prompt(500, 256)})
	require.Equal(t, contract.Cancelled, contract.KindOf(err))
	require.Zero(t, e.Stats().ActiveRequests+e.Stats().QueuedRequests, "its slot is free")
	require.NotEmpty(t, embed(t, e, tiny.Prompt(7, 256), nil))
}
