package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

// kernels=fast runs rounded products, says so in the plan and in the provenance, and depends no more on chunks and threads than
// exact ones do.
func TestFastKernelsRunAndAreNamed(t *testing.T) {
	b := backend(t)
	ids := make([]int32, 40)
	for i := range ids {
		ids[i] = int32(1 + i*7%90)
	}
	run := func(name, kernels string, chunk, threads uint32) ([]int32, *cladev1.Finish, *cladev1.Plan) {
		m, plan := open(t, b, spec(t, tinyPaths[name], &cladev1.Composition{
			Dtype: ptr("float32"), Kernels: &kernels, PrefillChunk: &chunk, Threads: &threads, Deterministic: ptr(true),
		}), nil)
		out, finish := generate(t, m, &plugin.GenerateJob{
			Start: &cladev1.GenerateStart{MaxTokens: ptr(uint32(24)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}}, IDs: ids,
		})
		require.NoError(t, m.Close())
		return out, finish, plan
	}
	for _, name := range []string{"llama-gguf-q4_1.gguf", "llama-gguf-q6_k.gguf", "llama-affine4"} {
		want, finish, plan := run(name, "fast", 256, 2)
		require.Contains(t, finish.Provenance.Kernels, "linear-int8", name)
		require.Len(t, plan.Notes, 1, name)
		require.Contains(t, plan.Notes[0], "kernels=fast: activations are rounded to 8 bits in front of", name)
		for _, how := range [][2]uint32{{256, 1}, {7, 2}, {1, 2}} {
			got, _, _ := run(name, "fast", how[0], how[1])
			require.Equal(t, want, got, "%s: chunks of %d on %d threads", name, how[0], how[1])
		}
		_, finish, plan = run(name, "auto", 256, 2)
		require.NotContains(t, finish.Provenance.Kernels, "linear-int8", name)
		require.Empty(t, plan.Notes, name)
	}
}

func TestFastKernelsAreRefusedWhereNothingIsQuantized(t *testing.T) {
	b := backend(t)
	_, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, tinyPaths["llama-f32"], &cladev1.Composition{Kernels: ptr("fast")})})
	require.ErrorContains(t, err, "kernels: fast rounds activations for quantized weights, and this model has none")
	var e *contract.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, contract.UnsupportedOption, e.Kind)
}
