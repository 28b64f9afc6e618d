package qwen35

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// A file as llama.cpp's converter writes it (value heads by turns, -exp(A_log), norms whole) gives llama.cpp's logits and ids, and where it
// holds floats those of its Hugging Face twin. llama.cpp ran on decoded values: it rounds activations where a matrix is quantized.
func TestGGUFsEqualTheirTwinAndLlamaCpp(t *testing.T) {
	written, err := tiny.WriteAll(t.TempDir(), tiny.Qwen35GGUF())
	require.NoError(t, err)
	ran := 0
	for _, g := range enginetest.Goldens(t, "../testdata/llamacpp.json") {
		path, ok := written[g.Name]
		if !ok {
			continue
		}
		ran++
		t.Run(g.Name, func(t *testing.T) {
			enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
				s := subject(g.Name, target, engine.Config{PrefillChunk: 512})
				s.Path = path
				e := s.Open(t)
				g.Hold(t, e, oracleBound)
				twin, ok := written[strings.TrimSuffix(g.Name, ".gguf")]
				if !ok {
					return
				}
				s.Path = twin
				ids := tiny.Prompt(90, g.Vocab)
				want, got := enginetest.Logits(t, s.Open(t), ids), enginetest.Logits(t, e, ids)
				for i := range ids {
					require.LessOrEqual(t, enginetest.Distance(want[i], got[i]), oracleBound, "position %d of the twin", i)
				}
			})
		})
	}
	require.Equal(t, 6, ran)
}

// On the kernels a row's bits do not depend on how the prompt is cut, nor on rows beside it and what was kept, in the file's order of heads
// as in the graph's.
func TestARecurrenceByTurnsIsBatchedKeptAndRestored(t *testing.T) {
	path, err := tiny.Qwen35GGUF("qwen35-gguf-turns.gguf")[0].Write(t.TempDir())
	require.NoError(t, err)
	s := subject("qwen35-gguf-turns.gguf", onKernels(t), engine.Config{PrefillChunk: 512})
	s.Path = path
	wishes := enginetest.Wishes(t, s.Open(t), 12)
	s.Config = engine.Config{PrefillChunk: 17, Rows: 8, Queue: 64, PrefixBytes: 1 << 30, Paging: true}
	e := s.Open(t)
	for range 2 {
		ids, errs := enginetest.AskAll(e, wishes)
		for i, w := range wishes {
			require.NoError(t, errs[i])
			require.Equal(t, w.Want, ids[i], "request %d", i)
		}
	}
	require.Zero(t, e.Stats().FailedEvaluations)
}

// What is wrong with a file is said with the tensor's name, or the field's.
func TestDamagedGGUFsAreRefusedByName(t *testing.T) {
	for says, change := range map[string]func(*tiny.Checkpoint){
		"layers.1.linear_attn.A_log: this tensor is missing": func(c *tiny.Checkpoint) { drop(c, "model.layers.1.linear_attn.A_log") },
		"layers.3.self_attn.q_proj.weight: this tensor is missing": func(c *tiny.Checkpoint) {
			drop(c, "model.layers.3.self_attn.q_proj.weight")
		},
		"blk.0.ssm_conv1d.weight: has shape [256 4], the config makes it [256 5]": func(c *tiny.Checkpoint) { c.Config["linear_conv_kernel_dim"] = 5 },
		"rotary_dim: 64 of 32 channels rotate": func(c *tiny.Checkpoint) {
			c.Config["rope_parameters"] = map[string]any{"rope_theta": 1e5, "partial_rotary_factor": 2.0, "mrope_section": []int{2, 1, 1}}
		},
		"blk.4.ffn_up.weight: the graph has no place for this tensor": func(c *tiny.Checkpoint) {
			c.Tensors = append(c.Tensors, tiny.Tensor{Name: "model.layers.4.mlp.up_proj.weight", Shape: []int{1, 32}, Values: make([]float32, 32)})
		},
	} {
		t.Run(says, func(t *testing.T) {
			c := tiny.Qwen35GGUF("qwen35-gguf-f32.gguf")[0]
			drop(&c, "mtp.")
			change(&c)
			path, err := c.Write(t.TempDir())
			require.NoError(t, err)
			a, err := artifact.Open(path)
			require.NoError(t, err)
			defer func() { require.NoError(t, a.Close()) }()
			_, parsed := enginetest.Parse(t, manifest, a)
			_, err = Graph().Read(a, parsed)
			require.ErrorContains(t, err, says)
			require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
		})
	}
}

func TestARecurrenceWhoseWidthsDisagreeIsRefused(t *testing.T) {
	path, err := tiny.Qwen35GGUF("qwen35-gguf-even.gguf")[0].Write(t.TempDir())
	require.NoError(t, err)
	a, err := artifact.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	_, parsed := enginetest.Parse(t, manifest, a)
	tree := maps.Clone(parsed.Map())
	tree["linear_inner_size"] = int64(96)
	_, err = ReadConfig(artifact.NewConfig(parsed.Name(), tree))
	require.ErrorContains(t, err, "linear_inner_size: 96 are no 2 value heads of 32")
}

// drop takes tensors out whose name begins so.
func drop(c *tiny.Checkpoint, prefix string) {
	var left []tiny.Tensor
	for _, t := range c.Tensors {
		if !strings.HasPrefix(t.Name, prefix) {
			left = append(left, t)
		}
	}
	c.Tensors = left
}

// An adapter is made where value heads are grouped by key head: one of a recurrence whose matrices have them by turns would change others.
func TestAdaptersOfARecurrenceByTurnsAreRefusedByName(t *testing.T) {
	for name, refused := range map[string]bool{"qwen35-gguf-turns.gguf": true, "qwen35-gguf-even.gguf": false} {
		path, err := tiny.Qwen35GGUF(name)[0].Write(t.TempDir())
		require.NoError(t, err)
		a, err := artifact.Open(path)
		require.NoError(t, err)
		_, parsed := enginetest.Parse(t, manifest, a)
		model, err := Graph().Read(a, parsed)
		require.NoError(t, err)
		require.NoError(t, a.Close())
		out, ok := model.Adapts("model.layers.0.linear_attn.in_proj_z")
		require.Equal(t, "language_model.model.layers.0.linear_attn.in_proj_z", out)
		require.Equal(t, refused, !ok, name)
		_, ok = model.Adapts("model.layers.1.self_attn.q_proj")
		require.True(t, ok)
	}
}
