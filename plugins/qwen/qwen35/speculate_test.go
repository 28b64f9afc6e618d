package qwen35

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/mlx"
)

// guesser drafts what the answers say, but every sixth token or so something else.
type guesser struct {
	wishes []enginetest.Wish
	rng    *rand.Rand
}

func (*guesser) Kind() string                                            { return "test" }
func (*guesser) Close()                                                  {}
func (*guesser) Expects(_ *engine.Text, _, most int) (tokens, class int) { return most, 0 }

func (g *guesser) Propose(_ *mlx.Scope, r *engine.Round) error {
	for _, a := range r.Asks {
		for _, w := range g.wishes {
			if n := len(a.IDs()) - len(w.Prompt); n >= 0 && n <= len(w.Want) && slices.Equal(a.IDs(), slices.Concat(w.Prompt, w.Want[:n])) {
				a.Drafts = slices.Clone(w.Want[n:])
				break
			}
		}
		for i := range a.Drafts {
			if g.rng.IntN(6) == 0 {
				a.Drafts[i] = int32(g.rng.IntN(256))
			}
		}
	}
	return nil
}

// States return to their mark when a draft is rejected, and the tokens are those of plain decoding, whatever else is kept and restored.
func TestRejectedDraftsLeaveTheStateAsItWas(t *testing.T) {
	wishes := enginetest.Wishes(t, open(t, engine.Config{PrefillChunk: 512}), 24)
	e := open(t, engine.Config{PrefillChunk: 64, Rows: 8, Queue: 64, PrefixBytes: 1 << 30, Speculation: engine.Speculation{
		Drafter: &guesser{wishes, rand.New(rand.NewPCG(1, 1))}, Depth: 4, Always: true,
	}})
	for range 2 { // the second time from what the first one kept
		ids, errs := enginetest.AskAll(e, wishes)
		for i, w := range wishes {
			require.NoError(t, errs[i])
			require.Equal(t, w.Want, ids[i], "request %d", i)
		}
	}
	stats := e.Stats()
	require.Greater(t, stats.DraftedTokens, stats.AcceptedTokens)
	require.Greater(t, stats.AcceptedTokens, stats.DraftedTokens/4)
	require.Zero(t, stats.FailedEvaluations)
}
