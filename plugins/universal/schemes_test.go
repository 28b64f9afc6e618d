package main

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// schemeBound is how far logits may be from the reference's: its arithmetic is float64, and where a value lies at a code's border a
// rounding decides. A latent's row is the keys and values of every head: there one code moves more.
const schemeBound, latentBound = 2e-3, 5e-3

// Logits under every scheme are those of a numpy model whose attention is over what the codes stand for (testdata/schemes.py): by
// kernels, by stock operations, and in blocks.
func TestLogitsOfEverySchemeAreThoseOfTheReference(t *testing.T) {
	data, err := os.ReadFile("testdata/schemes.json")
	require.NoError(t, err)
	var goldens []struct {
		Name, Scheme string
		Rows         map[string]string
	}
	require.NoError(t, json.Unmarshal(data, &goldens))
	require.Len(t, goldens, 18)
	b := backend(t)
	var native map[string]string
	for _, g := range goldens {
		ids := tiny.Prompt(300, len(enginetest.Row(t, g.Rows["0"])))
		bound := schemeBound
		if g.Name == "minicpm3-a" {
			bound = latentBound
		}
		if g.Scheme == "native" {
			native = g.Rows
		} else {
			require.Greater(t, enginetest.Distance(enginetest.Row(t, native["299"]), enginetest.Row(t, g.Rows["299"])), schemeBound/4, "%s changes something", g.Scheme)
		}
		for _, way := range []string{"kernels", "stock", "paged"} {
			t.Run(g.Name+" "+g.Scheme+" "+way, func(t *testing.T) {
				c := kvComposition(t, g.Scheme, 1, 64, 0)
				c.Deterministic, c.Paging = ptr(false), ptr(way == "paged")
				if way == "stock" {
					c.Kernels = ptr("off")
				}
				m, _ := open(t, b, spec(t, tinyPaths[g.Name], c), nil)
				got := make([][]float32, len(ids))
				job := &plugin.ScoreJob{Start: &cladev1.ScoreStart{Output: cladev1.ScoreOutput_SCORE_OUTPUT_LOGITS}, IDs: ids}
				require.NoError(t, m.Score(context.Background(), job, func(r *cladev1.ScoreResponse) error {
					if f := r.GetFrame(); f != nil {
						got[f.Position] = append(got[f.Position], f.Values...)
					}
					return nil
				}))
				for at, want := range g.Rows {
					n, err := strconv.Atoi(at)
					require.NoError(t, err)
					d := enginetest.Distance(enginetest.Row(t, want), got[n])
					t.Logf("position %d: %.2g", n, d)
					require.LessOrEqual(t, d, bound, "position %d", n)
				}
			})
		}
	}
}
