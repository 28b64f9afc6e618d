//go:build full

package e2e

import (
	"strconv"
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

func TestPeakMemoryOfSmolLM2IsThePlanWithAllRowsFilledAndThePrefixCacheFull(t *testing.T) {
	compareFull(t, smollm2(t), compose.Wishes{Context: 1024, Rows: 4, PrefixCache: strconv.Itoa(256 << 20)}, 512)
}

func TestARefusalOfSmolLM2IsFastAndReadsHeadersAlone(t *testing.T) { holdRefusal(t, smollm2(t)) }
