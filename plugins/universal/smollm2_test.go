//go:build full

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugin"
)

// The model comes with `make demo`; CLADE_SMOLLM2 names another place.
func smollm2(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("CLADE_SMOLLM2"); path != "" {
		return path
	}
	found, err := filepath.Glob("../../bin/demo/*.gguf")
	require.NoError(t, err)
	require.NotEmpty(t, found, "run make demo")
	return found[0]
}

func TestSmolLM2AnswersAsMLXLMDoes(t *testing.T) {
	data, err := os.ReadFile("testdata/smollm2.json")
	require.NoError(t, err)
	var golden struct {
		Cases []struct {
			Question string
			IDs      []int32
			Greedy   []int32
			Text     string
		}
		TextIDs    []int32 `json:"text_ids"`
		Perplexity map[string]float64
	}
	require.NoError(t, json.Unmarshal(data, &golden))
	require.Equal(t, "The capital of France is Paris.", golden.Cases[0].Text)

	b := backend(t)
	began := time.Now()
	m, plan := open(t, b, spec(t, smollm2(t), &cladev1.Composition{Context: ptr(uint32(1024))}), nil)
	t.Logf("open %s", time.Since(began).Round(time.Millisecond))
	for _, c := range golden.Cases {
		ids, finish := generate(t, m, &plugin.GenerateJob{
			Start: &cladev1.GenerateStart{MaxTokens: ptr(uint32(max(len(c.Greedy), 20)))}, IDs: c.IDs,
		})
		require.Equal(t, c.Greedy, ids, c.Question)
		u := finish.Usage
		t.Logf("%q: prefill %d in %s, %d tokens in %s", c.Question, u.PromptTokens,
			time.Duration(u.PrefillNs).Round(time.Millisecond), u.GeneratedTokens, time.Duration(u.DecodeNs).Round(time.Millisecond))
	}
	stats := m.Stats() // before the test itself holds the logits of a whole text
	t.Logf("plan %d MB: %v", plan.TotalBytes>>20, plan.Lines)
	t.Logf("notes %v, kernels %v", plan.Notes, plan.Kernels)
	t.Logf("active %d MB, peak %d MB, cache %d MB, resident %d MB", stats.Memory.ActiveBytes>>20, stats.Memory.PeakBytes>>20,
		stats.Memory.CacheBytes>>20, stats.Memory.RssBytes>>20)
	require.LessOrEqual(t, stats.Memory.RssBytes, plan.TotalBytes)
	requirePerplexity(t, m, golden.TextIDs, golden.Perplexity)
}
