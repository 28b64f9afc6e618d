package qwen35

import (
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// The bound of the families' issue: 1e-5 of the largest logit.
const oracleBound = 1e-5

func TestLogitsAndGreedyIDsEqualMLXLM(t *testing.T) {
	goldens := slices.Concat(enginetest.Goldens(t, "../testdata/qwen35.json"), enginetest.Goldens(t, "../testdata/qwen35_moe.json"))
	require.Len(t, goldens, len(tiny.Qwen35())+len(tiny.Qwen35MoE()))
	for _, g := range goldens {
		t.Run(g.Name, func(t *testing.T) {
			enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
				e := subject(g.Name, target, engine.Config{PrefillChunk: 512}).Open(t)
				for length, encoded := range g.LastRows {
					n, err := strconv.Atoi(length)
					require.NoError(t, err)
					rows := enginetest.Logits(t, e, tiny.Prompt(n, g.Vocab))
					d := enginetest.Distance(enginetest.Row(t, encoded), rows[n-1])
					t.Logf("prefill %3d: %.1e", n, d)
					require.LessOrEqual(t, d, oracleBound, "prefill of %d", n)
				}
				require.Equal(t, g.Greedy, enginetest.Greedy(t, e, tiny.Prompt(7, g.Vocab), len(g.Greedy)))
			})
		})
	}
}
