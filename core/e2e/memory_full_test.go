//go:build full

package e2e

import (
	"testing"

	"github.com/clademl/clade/core/compose"
)

// TestPeakMemoryOfSmolLM2IsWhatThePlanSays fills contexts that the caches grow to in steps.
func TestPeakMemoryOfSmolLM2IsWhatThePlanSays(t *testing.T) {
	for name, w := range map[string]compose.Wishes{
		"float32 1024": {Context: 1024}, "float32 4096": {Context: 4096}, "bfloat16 1024": {Context: 1024, DType: "bfloat16", Deterministic: "false"},
	} {
		t.Run(name, func(t *testing.T) { comparePlan(t, smollm2(t), w) })
	}
}

func TestARefusalOfSmolLM2IsFastAndReadsHeadersAlone(t *testing.T) { holdRefusal(t, smollm2(t)) }
