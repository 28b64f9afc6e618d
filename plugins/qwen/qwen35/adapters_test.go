package qwen35

import (
	"context"
	"strconv"
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
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// adapted is a subject with the adapter called name, which is of the checkpoint base.
func adapted(t *testing.T, base, name string, target weights.Target, config engine.Config) enginetest.Subject {
	t.Helper()
	of, _, _ := strings.Cut(name, ".")
	paths, err := tiny.WriteAll(t.TempDir(), tiny.Qwen35Adapters(of))
	require.NoError(t, err)
	s := subject(base, target, config)
	s.Adapters, s.AdapterBytes = []adapters.Spec{{ID: name, Path: paths[name], Scale: 1}}, 1<<24
	return s
}

// choosing is greedy with an adapter.
func choosing(adapter string, n int) *cladev1.GenerateStart {
	return &cladev1.GenerateStart{MaxTokens: ptr(uint32(n)), Adapter: &adapter, Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}}
}

// Adapters of mlx-lm beside mlx-lm's own load_adapters, those of PEFT beside numpy. The update of a file's q_proj, queries and gates of a
// head after each other, is the updates of both; experts among the layers take none.
func TestAdaptersEqualTheirOracles(t *testing.T) {
	goldens := enginetest.Goldens(t, "../testdata/adapters.json")
	require.Len(t, goldens, 7)
	for _, g := range goldens {
		t.Run(g.Name, func(t *testing.T) {
			base, _, _ := strings.Cut(g.Name, ".")
			enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
				e := adapted(t, base, g.Name, target, engine.Config{PrefillChunk: 64}).Open(t)
				for length, encoded := range g.LastRows {
					n, err := strconv.Atoi(length)
					require.NoError(t, err)
					var row []float32
					job := &plugin.ScoreJob{Start: &cladev1.ScoreStart{Output: cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS, Adapter: &g.Name}, IDs: tiny.Prompt(n, g.Vocab)}
					require.NoError(t, e.Score(context.Background(), job, func(r *cladev1.ScoreResponse) error {
						if f := r.GetFrame(); f != nil && int(f.Position) == n-1 {
							row = append(row, f.Values...)
						}
						return nil
					}))
					d := enginetest.Distance(enginetest.Row(t, encoded), row)
					t.Logf("prefill %3d: %.1e", n, d)
					require.LessOrEqual(t, d, oracleBound, "prefill of %d", n)
				}
				got, finish := enginetest.Generate(t, e, tiny.Prompt(7, g.Vocab), choosing(g.Name, len(g.Greedy)))
				require.Equal(t, g.Greedy, got)
				require.Equal(t, []string{g.Name + ":1"}, finish.Provenance.Adapters)
				plain, _ := enginetest.Generate(t, e, tiny.Prompt(7, g.Vocab), choosing("none", len(g.Greedy)))
				require.NotEqual(t, g.Greedy, plain)
			})
		})
	}
}

// Drafts of a head that knows of no adapter change no token of a request that has one.
func TestAHeadDraftsBesideAdapters(t *testing.T) {
	target := weights.Target{DType: mlx.Float32, Kernels: enginetest.Kernels(t)}
	const name = "qwen35-hf.mlx"
	plain := adapted(t, "qwen35-hf-mtp", name, target, engine.Config{PrefillChunk: 64})
	drafting := plain
	drafting.Draft = enginetest.Draft{Kind: bundledMTP, Depth: 3, Always: true}
	drafting.Config.PrefixBytes = 1 << 28
	ids := tiny.Prompt(90, 256)
	want, alone := map[string][]int32{}, plain.Open(t)
	for _, choice := range []string{name, "none"} {
		want[choice], _ = enginetest.Generate(t, alone, ids, choosing(choice, 40))
	}
	e := drafting.Open(t)
	for range 2 {
		for _, choice := range []string{name, "none"} {
			got, _ := enginetest.Generate(t, e, ids, choosing(choice, 40))
			require.Equal(t, want[choice], got, choice)
		}
	}
	require.Positive(t, e.Stats().DraftedTokens)
}

// An adapter that changes what takes none is refused as a whole, naming the module.
func TestAdaptersOfWhatTakesNoneAreRefusedByName(t *testing.T) {
	layer := "language_model.model.layers."
	pair := func(path string, out, in int) []tiny.Tensor {
		return []tiny.Tensor{{Name: path + ".lora_a", Shape: []int{in, 4}}, {Name: path + ".lora_b", Shape: []int{4, out}}}
	}
	for says, tensors := range map[string][]tiny.Tensor{
		"0.mlp.switch_mlp.down_proj: changes the matrices of experts, which take no adapters":            pair(layer+"0.mlp.switch_mlp.down_proj", 64, 32),
		"0.mlp.experts.3.down_proj: the model has no such linear layer that takes adapters":              pair("model.language_model.layers.0.mlp.experts.3.down_proj", 64, 32),
		"3.self_attn.q_gate: the model has no such linear layer that takes adapters":                     pair(layer+"3.self_attn.q_gate", 128, 64),
		"3.self_attn.q_proj: changes a layer of 128 by 64, the model's is [256 64]":                      pair(layer+"3.self_attn.q_proj", 128, 64),
		"0.linear_attn.conv1d: the model has no such linear layer that takes adapters":                   pair(layer+"0.linear_attn.conv1d", 256, 4),
		"lm_head: the model has no such linear layer that takes adapters":                                pair("language_model.lm_head", 256, 64),
		"mtp.layers.0.mlp.shared_expert.up_proj: the model has no such linear layer that takes adapters": pair("mtp.layers.0.mlp.shared_expert.up_proj", 48, 64),
		"0.mlp.experts.gate_up_proj: the model has no such linear layer that takes adapters":             pair("model.language_model.layers.0.mlp.experts.gate_up_proj", 64, 64),
		"changes the same layer as language_model.model.layers.3.self_attn.q_proj":                       append(pair(layer+"3.self_attn.q_proj", 256, 64), pair("model.language_model.layers.3.self_attn.q_proj", 256, 64)...),
	} {
		t.Run(says, func(t *testing.T) {
			path, err := tiny.Adapter("wrong", false, tensors...).Write(t.TempDir())
			require.NoError(t, err)
			a, err := lora.Open(path)
			require.NoError(t, err)
			defer func() { require.NoError(t, a.Close()) }()
			model := readTiny(t, "qwen35-moe-hf")
			_, err = adapters.Fit(a, adapters.Model{Params: model.Weights.Params(), Layer: model.Adapts})
			require.ErrorContains(t, err, says)
			require.Contains(t, []contract.Kind{contract.ArtifactCorrupt, contract.UnsupportedOption}, contract.KindOf(err))
		})
	}
}

// readTiny reads a model from headers.
func readTiny(t *testing.T, name string) engine.Blueprint {
	t.Helper()
	a, err := artifact.Open(tinyPaths[name])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	_, parsed := enginetest.Parse(t, manifest, a)
	b, err := subject(name, weights.Target{}, engine.Config{}).Graph.Read(a, parsed)
	require.NoError(t, err)
	return b
}
