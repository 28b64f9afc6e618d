package dense

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// The graph stands in for qwen3's own (plugin.yaml, implementations), on a config that qwen3's record read: from GGUF as from safetensors
// it gives the goldens of that graph.
func TestAQwen3IsRunWhoeversRecordReadIt(t *testing.T) {
	paths, err := tiny.WriteAll(t.TempDir(), tiny.Qwen3("qwen3-f32", "qwen3-gguf-f32.gguf", "qwen3-gguf-q8_0.gguf", "qwen3-gguf-q4_1.gguf"))
	require.NoError(t, err)
	ran := 0
	for _, g := range enginetest.Goldens(t, "../../qwen/testdata/qwen3.json") {
		path, ok := paths[g.Name]
		if !ok {
			continue
		}
		ran++
		t.Run(g.Name, func(t *testing.T) {
			enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
				e := enginetest.Subject{
					Graph: Graph(), Manifest: "../../qwen/plugin.yaml", Path: path, Target: target, Config: engine.Config{PrefillChunk: 512},
				}.Open(t)
				g.Hold(t, e, oracleBound)
			})
		})
	}
	require.Equal(t, len(paths), ran)
}
