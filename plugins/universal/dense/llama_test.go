package dense

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// The bound of the spine issue: 1e-5 of the largest logit.
const oracleBound = 1e-5

func TestLogitsEqualMLXLM(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.Name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, kernels *mlx.Kernels) {
				e := openOn(t, tinyPaths[g.Name], weights.Target{DType: mlx.Float32, Kernels: kernels}, 512)
				for length := range g.LastRows {
					n, err := strconv.Atoi(length)
					require.NoError(t, err)
					rows := logits(t, e, tiny.Prompt(n, g.Vocab))
					d := distance(g.lastRow(t, length), rows[n-1])
					t.Logf("prefill %3d: %.1e", n, d)
					require.LessOrEqual(t, d, oracleBound, "prefill of %d", n)
				}
			})
		})
	}
}

func TestGreedyIDsEqualMLXLM(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.Name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, kernels *mlx.Kernels) {
				e := openOn(t, tinyPaths[g.Name], weights.Target{DType: mlx.Float32, Kernels: kernels}, 512)
				got := generate(t, e, tiny.Prompt(7, g.Vocab), &cladev1.GenerateStart{
					MaxTokens: ptr(uint32(len(g.Greedy))), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)},
				})
				require.Equal(t, g.Greedy, got.ids)
				require.Equal(t, cladev1.FinishReason_FINISH_REASON_LENGTH, got.finish.Reason)
			})
		})
	}
}

// On the kernels a row's bits do not depend on how the prompt is cut; stock operations keep to the oracle's bound.
func TestLogitsDoNotDependOnThePrefillChunk(t *testing.T) {
	for _, name := range []string{"llama-f32", "llama-sliding", "llama-rope-yarn", "llama-affine4"} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, kernels *mlx.Kernels) {
				ids, target := tiny.Prompt(300, 256), weights.Target{DType: mlx.Float32, Kernels: kernels}
				whole := logits(t, openOn(t, tinyPaths[name], target, 512), ids)
				for _, chunk := range []int{1, 7, 64, 255} {
					cut := logits(t, openOn(t, tinyPaths[name], target, chunk), ids)
					if kernels != nil {
						require.Equal(t, whole, cut, "chunk %d", chunk)
						continue
					}
					for i := range ids {
						require.LessOrEqual(t, distance(whole[i], cut[i]), oracleBound, "position %d, chunk %d", i, chunk)
					}
				}
			})
		})
	}
}
