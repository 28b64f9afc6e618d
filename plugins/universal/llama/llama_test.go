package llama

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// The bound of the spine issue: 1e-5 of the largest logit.
const oracleBound = 1e-5

func TestLogitsEqualMLXLM(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.Name, func(t *testing.T) {
			e := open(t, tinyPaths[g.Name], mlx.Float32, 512)
			for length := range g.LastRows {
				n, err := strconv.Atoi(length)
				require.NoError(t, err)
				rows := logits(t, e, tiny.Prompt(n, g.Vocab))
				d := distance(g.lastRow(t, length), rows[n-1])
				t.Logf("prefill %3d: %.1e", n, d)
				require.LessOrEqual(t, d, oracleBound, "prefill of %d", n)
			}
		})
	}
}

func TestGreedyIDsEqualMLXLM(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.Name, func(t *testing.T) {
			e := open(t, tinyPaths[g.Name], mlx.Float32, 512)
			got := generate(t, e, tiny.Prompt(7, g.Vocab), &cladev1.GenerateStart{
				MaxTokens: ptr(uint32(len(g.Greedy))), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)},
			})
			require.Equal(t, g.Greedy, got.ids)
			require.Equal(t, cladev1.FinishReason_FINISH_REASON_LENGTH, got.finish.Reason)
		})
	}
}

func TestLogitsDoNotDependOnThePrefillChunk(t *testing.T) {
	for _, name := range []string{"llama-f32", "llama-sliding", "llama-rope-yarn"} {
		t.Run(name, func(t *testing.T) {
			ids := tiny.Prompt(300, 256)
			whole := logits(t, open(t, tinyPaths[name], mlx.Float32, 512), ids)
			for _, chunk := range []int{1, 7, 64, 255} {
				cut := logits(t, open(t, tinyPaths[name], mlx.Float32, chunk), ids)
				same := true
				for i := range ids {
					require.LessOrEqual(t, distance(whole[i], cut[i]), oracleBound, "position %d, chunk %d", i, chunk)
					same = same && distance(whole[i], cut[i]) == 0
				}
				t.Logf("chunk %d: same bits %v", chunk, same)
			}
		})
	}
}
