package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// mlx-lm 0.32.2 takes its default base for a llama whose config has rope_parameters alone: what is honoured here, show says.
func TestShowSaysThatPositionsFollowRopeParameters(t *testing.T) {
	model := checkpoint(t, "llama-f32", func(config map[string]any) {
		delete(config, "rope_theta")
		config["rope_parameters"] = map[string]any{"rope_type": "linear", "factor": 2.5, "rope_theta": 54321.0}
	})
	require.Contains(t, ok(t, "show", model), "positions follow rope_parameters of config.json: base 54321, type linear")
}

func TestEmbeddingsOfAGraphThatDeclaresNoneNameOneThatDoes(t *testing.T) {
	model := checkpoint(t, "llama-f32")
	require.NoError(t, tiny.WriteByteTokenizer(model))
	r := clade(t, "embed", model, "--text", "Paris")
	require.Equal(t, 2, r.code, r.errors)
	require.Contains(t, r.errors, "its graph universal-dense gives no embeddings; use a model of qwen3")
}

// A GGUF of a row beside llama runs through host and plugin as its Hugging Face twin does.
func TestAGGUFOfARowRunsAsItsTwinThroughTheWholeStack(t *testing.T) {
	paths, err := tiny.WriteAll(t.TempDir(), tiny.DenseGGUF("gguf-phi3", "gguf-gemma2"))
	require.NoError(t, err)
	for _, name := range []string{"gguf-phi3", "gguf-gemma2"} {
		var got [2]struct {
			TokenIDs []int32 `json:"token_ids"`
		}
		for i, model := range []string{paths[name], paths[name+".gguf"]} {
			ids := write(t, t.TempDir()+"/ids", tiny.Prompt(40, 211))
			jsonOf(t, &got[i], "generate", model, "--ids", ids, "--max-tokens", "24", "--temperature", "0", "--ignore-eos", "--dtype", "float32", "--json")
		}
		require.Len(t, got[0].TokenIDs, 24)
		require.Equal(t, got[0].TokenIDs, got[1].TokenIDs, name)
	}
}
