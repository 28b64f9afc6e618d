package qwen3

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/artifact/lora"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/adapters"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// The products of experts take no changes: an adapter that has some is refused as a whole, naming the module or tensor.
func TestAdaptersOfExpertsAreRefusedByName(t *testing.T) {
	a, err := artifact.Open(tinyPaths["qwen3-moe-16"])
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	_, parsed := enginetest.Parse(t, "../plugin.yaml", a)
	b, err := MoEGraph().Read(a, parsed)
	require.NoError(t, err)
	const mlp = "model.layers.0.mlp."
	for says, tensors := range map[string][]tiny.Tensor{
		// As mlx-lm stores a LoRASwitchLinear: matrices of every expert in one tensor.
		"mlp.switch_mlp.gate_proj.lora_a": {
			{Name: mlp + "switch_mlp.gate_proj.lora_a", Shape: []int{16, 4, 64}}, {Name: mlp + "switch_mlp.gate_proj.lora_b", Shape: []int{16, 32, 4}},
		},
		"model.layers.0.mlp.switch_mlp.up_proj: changes the matrices of experts, which take no adapters": {
			{Name: mlp + "switch_mlp.up_proj.lora_a", Shape: []int{64, 4}}, {Name: mlp + "switch_mlp.up_proj.lora_b", Shape: []int{4, 32}},
		},
		"model.layers.0.mlp.experts.3.down_proj: the model has no such linear layer that takes adapters": {
			{Name: "base_model.model." + mlp + "experts.3.down_proj.lora_A.weight", Shape: []int{4, 32}},
			{Name: "base_model.model." + mlp + "experts.3.down_proj.lora_B.weight", Shape: []int{64, 4}},
		},
	} {
		path, err := tiny.Adapter("experts", strings.HasPrefix(tensors[0].Name, "base_model."), tensors...).Write(t.TempDir())
		require.NoError(t, err)
		adapter, err := lora.Open(path)
		if err == nil {
			_, err = adapters.Fit(adapter, adapters.Model{Params: b.Weights.Params(), Layer: b.Adapts})
		}
		require.ErrorContains(t, err, says)
		require.NotEqual(t, contract.Internal, contract.KindOf(err))
	}
}

// The router is a linear layer like others: what an adapter makes of it decides which experts are picked.
func TestAnAdapterOfTheRouterIsHonoured(t *testing.T) {
	path, err := tiny.Adapter("router", false,
		tiny.Tensor{Name: "model.layers.1.mlp.gate.lora_a", Shape: []int{64, 4}}, tiny.Tensor{Name: "model.layers.1.mlp.gate.lora_b", Shape: []int{4, 16}},
	).Write(t.TempDir())
	require.NoError(t, err)
	enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
		s := subject("qwen3-moe-16", target, 64)
		s.Adapters = []adapters.Spec{{ID: "router", Path: path, Scale: 1}}
		s.AdapterBytes = 1 << 20
		e := s.Open(t)
		ids := tiny.Prompt(20, 256)
		most := uint32(40)
		said := func(choice string) []int32 {
			ignore := true
			out, _ := enginetest.Generate(t, e, ids, &cladev1.GenerateStart{MaxTokens: &most, Adapter: &choice, Sampling: &cladev1.Sampling{IgnoreEos: &ignore}})
			return out
		}
		s.Adapters, s.AdapterBytes = nil, 0
		s.Config = engine.Config{PrefillChunk: 64}
		require.Equal(t, enginetest.Greedy(t, s.Open(t), ids, int(most)), said("none"))
		require.NotEqual(t, said("none"), said("router"))
	})
}
