package qwen35

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// mlx-vlm 0.7.10 stacks experts that lie one by one (mlx-lm does not): model and head have the bits of the twin whose experts are fused.
func TestExpertsOneByOneHaveTheBitsOfFusedOnes(t *testing.T) {
	path, err := tiny.Qwen35MoESingle().Write(t.TempDir())
	require.NoError(t, err)
	enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
		single, fused := subject("qwen35-moe-hf-mtp", target, engine.Config{PrefillChunk: 64}), subject("qwen35-moe-hf-mtp", target, engine.Config{PrefillChunk: 64})
		single.Path = path
		ids := tiny.Prompt(90, 256)
		require.Equal(t, enginetest.Logits(t, fused.Open(t), ids), enginetest.Logits(t, single.Open(t), ids))
		single.Draft = enginetest.Draft{Kind: bundledMTP, Depth: 3, Always: true}
		fused.Draft = single.Draft
		want, one := enginetest.Generate(t, fused.Open(t), ids, greedy(40))
		got, other := enginetest.Generate(t, single.Open(t), ids, greedy(40))
		require.Equal(t, want, got)
		require.Equal(t, one.Usage.Accepted, other.Usage.Accepted)
	})
}

// Of experts that lie one by one each must be there, of its shape, and none beside a fused tensor of the layer.
func TestDamagedExpertsOneByOneAreRefusedByName(t *testing.T) {
	const layer = "model.language_model.layers.2.mlp."
	for says, change := range map[string]func(*tiny.Checkpoint){
		"layers.2.mlp.experts.5.up_proj.weight: this tensor is missing": func(c *tiny.Checkpoint) {
			c.Tensors = slices.DeleteFunc(c.Tensors, func(x tiny.Tensor) bool { return x.Name == layer+"experts.5.up_proj.weight" })
		},
		layer + "experts.3.down_proj.weight: has shape [32 64], the config makes it [64 32]": func(c *tiny.Checkpoint) {
			for i, x := range c.Tensors {
				if x.Name == layer+"experts.3.down_proj.weight" {
					c.Tensors[i].Shape = []int{32, 64}
				}
			}
		},
		layer + "experts.8.up_proj.weight: the graph has no place for this tensor": func(c *tiny.Checkpoint) {
			c.Tensors = append(c.Tensors, tiny.Tensor{Name: layer + "experts.8.up_proj.weight", Shape: []int{1}, Values: []float32{1}})
		},
		layer + "experts.gate_up_proj: the graph has no place for this tensor": func(c *tiny.Checkpoint) {
			c.Tensors = append(c.Tensors, tiny.Tensor{Name: layer + "experts.gate_up_proj", Shape: []int{1}, Values: []float32{1}})
		},
	} {
		t.Run(says, func(t *testing.T) {
			c := tiny.Qwen35MoESingle()
			change(&c)
			path, err := c.Write(t.TempDir())
			require.NoError(t, err)
			a, err := artifact.Open(path)
			require.NoError(t, err)
			defer func() { require.NoError(t, a.Close()) }()
			_, parsed := enginetest.Parse(t, manifest, a)
			_, err = MoEGraph().Read(a, parsed)
			require.ErrorContains(t, err, says)
			require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
		})
	}
}
