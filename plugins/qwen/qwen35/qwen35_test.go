package qwen35

import (
	"slices"
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
				g.Hold(t, e, oracleBound)
			})
		})
	}
}
