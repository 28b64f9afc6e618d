package qwen3

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// A model of trellis codes, of 2 to 4 bits along both axes, computes what a model of the decoded values does: bit for bit on the
// kernels, whose products add in one order whatever the format, and however the prompt is cut.
func TestATrellisModelComputesWhatItsDecodedValuesDo(t *testing.T) {
	coded, decoded := tiny.Qwen3Trellis()
	paths, err := tiny.WriteAll(t.TempDir(), []tiny.Checkpoint{coded, decoded})
	require.NoError(t, err)
	ids := tiny.Prompt(40, 256)
	enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
		open := func(name string, chunk int) *engine.Engine {
			return enginetest.Subject{Graph: Graph(), Manifest: "../plugin.yaml", Path: paths[name], Target: target, Config: engine.Config{PrefillChunk: chunk}}.Open(t)
		}
		want := enginetest.Logits(t, open(decoded.Name, 512), ids)
		got := enginetest.Logits(t, open(coded.Name, 512), ids)
		if target.Sources == nil {
			require.Equal(t, want, got)
		} else { // a GPU's own products of floats add in another order
			for i := range want {
				require.LessOrEqual(t, enginetest.Distance(want[i], got[i]), oracleBound)
			}
		}
		if target.Kernels != nil {
			require.Equal(t, want, enginetest.Logits(t, open(coded.Name, 7), ids), "in chunks of 7")
		}
	})
}
