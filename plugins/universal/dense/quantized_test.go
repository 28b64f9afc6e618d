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

// Rows in every width and mode of MLX's, with entries for modules, fused projections, and repacked from AutoAWQ's layout, give mlx-lm's logits
// and greedy ids.
func TestQuantizedRowsEqualMLXLM(t *testing.T) {
	golden := map[string]golden{}
	for _, g := range readGoldens(t, "quantized.json") {
		golden[g.Name] = g
	}
	require.Len(t, golden, len(tiny.DenseQuantizedNames(true)), "run testdata/rows.py on them again")
	dir := t.TempDir()
	for _, name := range tiny.DenseQuantizedNames(allRows) {
		t.Run(name, func(t *testing.T) {
			paths, err := tiny.WriteAll(dir, tiny.DenseQuantized(name))
			require.NoError(t, err)
			g := golden[name]
			bothWays(t, func(t *testing.T, kernels *mlx.Kernels) {
				e := openOn(t, paths[name], weights.Target{DType: mlx.Float32, Kernels: kernels}, 512)
				most := 0.0
				for length := range g.LastRows {
					n, err := strconv.Atoi(length)
					require.NoError(t, err)
					d := distance(g.lastRow(t, length), logits(t, e, tiny.Prompt(n, g.Vocab))[n-1])
					most = max(most, d)
					require.LessOrEqual(t, d, boundOf(name), "prefill of %d, kernels %t", n, kernels != nil)
				}
				t.Logf("kernels %t: largest difference %.1e", kernels != nil, most)
				got := generate(t, e, tiny.Prompt(7, g.Vocab), &cladev1.GenerateStart{
					MaxTokens: ptr(uint32(len(g.Greedy))), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)},
				})
				require.Equal(t, g.Greedy, got.ids, "kernels %t", kernels != nil)
			})
		})
	}
}
