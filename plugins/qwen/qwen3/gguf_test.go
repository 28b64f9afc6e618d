package qwen3

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// A mixture as llama.cpp's converter writes it gives llama.cpp's logits and ids, and where it holds floats the bits of its twin as
// Hugging Face stores it. llama.cpp ran on decoded values: it rounds activations where a matrix is quantized.
func TestGGUFsOfMixturesEqualTheirTwinAndLlamaCpp(t *testing.T) {
	written, err := tiny.WriteAll(t.TempDir(), tiny.Qwen3MoEGGUF())
	require.NoError(t, err)
	ran := 0
	for _, g := range enginetest.Goldens(t, "../testdata/llamacpp.json") {
		if written[g.Name] == "" {
			continue
		}
		ran++
		t.Run(g.Name, func(t *testing.T) {
			enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
				s := subject("qwen3-moe", target, 512)
				s.Path = written[g.Name]
				e := s.Open(t)
				g.Hold(t, e, oracleBound)
				if twin, ok := written[strings.TrimSuffix(g.Name, ".gguf")]; ok {
					s.Path = twin
					ids := tiny.Prompt(90, g.Vocab)
					require.Equal(t, enginetest.Logits(t, s.Open(t), ids), enginetest.Logits(t, e, ids))
				}
			})
		})
	}
	require.Equal(t, len(written)-1, ran)
}

// Experts stay packed in every block format that the kernels hold.
func TestGGUFExpertsStayPacked(t *testing.T) {
	target := weights.Target{DType: mlx.Float32, Kernels: enginetest.Kernels(t)}
	for _, c := range tiny.Qwen3MoEGGUF("qwen3-moe-gguf-q8_0.gguf", "qwen3-moe-gguf-q4_1.gguf", "qwen3-moe-gguf-k.gguf") {
		path, err := c.Write(t.TempDir())
		require.NoError(t, err)
		b := blueprint(t, path)
		packed, err := b.LoadedBytes(target)
		require.NoError(t, err)
		clear, err := b.LoadedBytes(weights.Target{DType: mlx.Float32})
		require.NoError(t, err)
		require.Less(t, packed, clear/2, c.Name)
		if strings.Contains(c.Name, "-k.") {
			require.Equal(t, "1 IQ4_XS, 1 Q2_K, 1 Q3_K, 1 Q4_K, 1 Q5_K, 1 Q6_K, 9 Q8_0", b.Quantized())
		}
	}
}

func blueprint(t *testing.T, path string) *weights.Set {
	t.Helper()
	a, err := artifact.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	_, parsed := enginetest.Parse(t, "../plugin.yaml", a)
	b, err := MoEGraph().Read(a, parsed)
	require.NoError(t, err)
	return b.Weights
}

// What is wrong with a file is said with the tensor's name, or the field's.
func TestDamagedGGUFsOfMixturesAreRefusedByName(t *testing.T) {
	c := tiny.Qwen3MoEGGUF("qwen3-moe-gguf-f32.gguf")[0]
	drop := func(name string) func(*tiny.Checkpoint) {
		return func(c *tiny.Checkpoint) {
			c.Tensors = slices.DeleteFunc(slices.Clone(c.Tensors), func(x tiny.Tensor) bool { return x.Name == name })
		}
	}
	for says, change := range map[string]func(*tiny.Checkpoint){
		"model.layers.1.mlp.switch_mlp.up_proj.weight: this tensor is missing": drop("model.layers.1.mlp.switch_mlp.up_proj.weight"),
		"model.layers.0.mlp.gate.weight: this tensor is missing":               drop("model.layers.0.mlp.gate.weight"),
		"blk.0.ffn_gate_exps.weight: has shape [8 32 64], the config makes it [8 48 64]": func(c *tiny.Checkpoint) {
			c.Config["moe_intermediate_size"] = 48
		},
		"blk.0.ffn_gate_inp.weight: has shape [8 64], the config makes it [16 64]": func(c *tiny.Checkpoint) { c.Config["num_experts"] = 16 },
		"num_experts_per_tok":                              func(c *tiny.Checkpoint) { c.Config["num_experts_per_tok"] = 9 },
		"num_experts: the number of experts must be known": func(c *tiny.Checkpoint) { c.Config["num_experts"] = 0 },
		"blk.1.ffn_gate.weight: the graph has no place for this tensor": func(c *tiny.Checkpoint) {
			c.Tensors = append(slices.Clone(c.Tensors), tiny.Tensor{Name: "model.layers.1.mlp.gate_proj.weight", Shape: []int{1, 32}, Values: make([]float32, 32)})
		},
	} {
		t.Run(says, func(t *testing.T) {
			damaged := c
			damaged.Config = maps.Clone(c.Config)
			change(&damaged)
			path, err := damaged.Write(t.TempDir())
			require.NoError(t, err)
			require.ErrorContains(t, reads(t, path), says)
		})
	}
	path, err := c.Write(t.TempDir())
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, info.Size()-64))
	require.ErrorContains(t, reads(t, path), "output_norm.weight")
}

// reads opens a mixture up to its tensors' places.
func reads(t *testing.T, path string) error {
	t.Helper()
	a, err := artifact.Open(path)
	if err != nil {
		require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
		return err
	}
	defer func() { require.NoError(t, a.Close()) }()
	data, err := os.ReadFile("../plugin.yaml")
	require.NoError(t, err)
	manifest, err := family.ParseManifest(data)
	require.NoError(t, err)
	for _, record := range manifest.Families {
		if !record.Match(a.Config()).OK {
			continue
		}
		parsed, err := record.Parse(a)
		if err != nil {
			return err
		}
		_, err = MoEGraph().Read(a, parsed.Config)
		if err != nil {
			require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err), "%v", err)
		}
		return err
	}
	return fmt.Errorf("no record takes %s", path)
}

// mlx-lm rotates mixtures of this type plainly, whatever their config asks for.
func TestTheRopeScalingOfAMixtureIsNotRead(t *testing.T) {
	parsed, err := artifact.ParseConfig("config.json", []byte(`{"hidden_size":64,"intermediate_size":128,"vocab_size":256,"num_hidden_layers":2,
		"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,"rms_norm_eps":1e-6,"rope_theta":1e6,"tie_word_embeddings":true,"num_experts":8,
		"num_experts_per_tok":2,"moe_intermediate_size":32,"decoder_sparse_step":1,"mlp_only_layers":[],"norm_topk_prob":true,
		"max_position_embeddings":512,"rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":64}}`))
	require.NoError(t, err)
	c, err := ReadMoEConfig(parsed)
	require.NoError(t, err)
	require.Equal(t, nn.RopeDefault, c.Rope.Kind)
}
