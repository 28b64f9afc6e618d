package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// windowed is a composition with a window over 1,200 tokens of context.
func windowed(t *testing.T, scheme string, window, keep, chunk uint32) *cladev1.Composition {
	t.Helper()
	c := kvComposition(t, scheme, 2, chunk, 0)
	c.Context, c.KvWindow, c.KvKeep = ptr(uint32(1200)), &window, &keep
	return c
}

// allLogits scores ids.
func allLogits(t *testing.T, m plugin.Model, ids []int32) [][]float32 {
	t.Helper()
	got := make([][]float32, len(ids))
	job := &plugin.ScoreJob{Start: &cladev1.ScoreStart{Output: cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS}, IDs: ids}
	require.NoError(t, m.Score(context.Background(), job, func(r *cladev1.ScoreResponse) error {
		if f := r.GetFrame(); f != nil {
			got[f.Position] = append(got[f.Position], f.Values...)
		}
		return nil
	}))
	return got
}

// Logits with kv_window are those of a numpy model whose layers see the last tokens and the first ones (testdata/windows.json), at every
// border, by kernels and by stock operations; and on the kernels they do not depend on how the text was cut.
func TestLogitsOfAWindowWithFirstTokensAreThoseOfTheReference(t *testing.T) {
	data, err := os.ReadFile("testdata/windows.json")
	require.NoError(t, err)
	var goldens []struct {
		Name, Scheme string
		Window, Keep uint32
		Rows         map[string]string
	}
	require.NoError(t, json.Unmarshal(data, &goldens))
	require.Len(t, goldens, 6)
	b := backend(t)
	for _, g := range goldens {
		t.Run(fmt.Sprintf("%s %s %d+%d", g.Name, g.Scheme, g.Window, g.Keep), func(t *testing.T) {
			ids := tiny.Prompt(1100, len(enginetest.Row(t, g.Rows["0"])))
			var whole [][]float32
			for _, way := range []string{"whole", "cut", "stock"} {
				c := windowed(t, g.Scheme, g.Window, g.Keep, 256)
				switch way {
				case "cut":
					c.PrefillChunk = ptr(uint32(37))
				case "stock":
					c.Kernels, c.Deterministic = ptr("off"), ptr(false)
				}
				m, plan := open(t, b, spec(t, tinyPaths[g.Name], c), nil)
				require.Contains(t, fmt.Sprint(plan.Notes), fmt.Sprintf("attention sees the last %d tokens and the first %d", g.Window, g.Keep))
				got := allLogits(t, m, ids)
				for at, want := range g.Rows {
					n, err := strconv.Atoi(at)
					require.NoError(t, err)
					bound := 1e-5
					if g.Scheme != "native" {
						bound = schemeBound
					}
					require.LessOrEqual(t, enginetest.Distance(enginetest.Row(t, want), got[n]), bound, "%s, position %d", way, n)
				}
				if way == "whole" {
					whole = got
				} else if way == "cut" {
					require.Equal(t, whole, got)
				}
				require.NoError(t, m.Close())
			}
		})
	}
}

// The plan counts no more tokens than stay, and requests beside others, from what is kept and after a restart have their own tokens.
func TestAWindowBoundsTheCaches(t *testing.T) {
	b := backend(t)
	path := tinyPaths["llama-untied-headdim"]
	line := func(c *cladev1.Composition) uint64 {
		plan, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, path, c)})
		require.NoError(t, err)
		for _, l := range plan.Lines {
			if l.Name == "kv" {
				return l.Bytes / plan.BytesPerToken
			}
		}
		return 0
	}
	c := windowed(t, "native", 60, 4, 64)
	c.Rows = ptr(uint32(1))
	require.EqualValues(t, 512+256, line(c), "the window and 256 more, and the first tile")
	c.KvWindow, c.KvKeep = nil, nil
	require.EqualValues(t, 1280, line(c))

	cold, _ := open(t, b, spec(t, path, windowed(t, "native", 60, 4, 256)), nil)
	full, _ := open(t, b, spec(t, path, kvComposition(t, "native", 1, 256, 0)), nil)
	warmed := windowed(t, "native", 60, 4, 50)
	warmed.PrefixCacheBytes = ptr(uint64(64 << 20))
	warm, _ := open(t, b, spec(t, path, warmed), nil)
	prompt := kvPrompt(1, 300)
	want, _ := generate(t, cold, kvJob(prompt))
	other, _ := generate(t, full, kvJob(prompt))
	require.NotEqual(t, other, want, "it computes something else")
	for range 2 {
		got, _ := generate(t, warm, kvJob(prompt))
		require.Equal(t, want, got)
	}
	resumed := kvJob(append(append([]int32{}, prompt...), want[:5]...))
	resumed.Start.GeneratedPrefix = ptr(uint32(len(prompt)))
	got, _ := generate(t, warm, resumed)
	require.Equal(t, want[5:], got)
}

func TestAWindowThatCannotBeIsRefusedByName(t *testing.T) {
	b := backend(t)
	for _, tt := range []struct {
		model        string
		window, keep uint32
		paging       bool
		why          string
		kind         contract.Kind
	}{
		{"llama-untied-headdim", 60, 257, false, "kv_window: 60 tokens and the first 257", contract.InvalidArgument},
		{"llama-untied-headdim", 0, 4, false, "kv_window: 0 tokens and the first 4", contract.InvalidArgument},
		{"minicpm3-a", 60, 4, false, "kv_window: layer 0 keeps latents", contract.UnsupportedOption},
		{"llama-untied-headdim", 60, 4, true, "paging: no layer attends to all positions", contract.UnsupportedOption},
	} {
		c := windowed(t, "native", tt.window, tt.keep, 64)
		c.Paging = &tt.paging
		_, err := b.Plan(context.Background(), &cladev1.PlanRequest{Model: spec(t, tinyPaths[tt.model], c)})
		require.ErrorContains(t, err, tt.why)
		require.Equal(t, tt.kind, contract.KindOf(err))
	}
}
