package llama

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// A conversation's next turn computes only what is new, and gives what it gives cold.
func TestTheNextTurnComputesOnlyNewTokens(t *testing.T) {
	start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(20)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}}
	cold := open(t, tinyPaths[testModel], mlx.Float32, 512)
	warm := openConfig(t, tinyPaths[testModel], engine.Config{Context: 512, PrefillChunk: 64, PrefixBytes: 1 << 30})
	turn := tiny.Prompt(300, 256)
	first := generate(t, warm, turn, start)
	require.Equal(t, generate(t, cold, turn, start).ids, first.ids)
	require.Zero(t, first.finish.Usage.CachedTokens)

	turn = append(append(turn, first.ids...), tiny.Prompt(30, 256)...)
	second := generate(t, warm, turn, start)
	require.Equal(t, generate(t, cold, turn, start).ids, second.ids)
	require.GreaterOrEqual(t, int(second.finish.Usage.CachedTokens), 318, "all but the last token of the answer")

	// Nothing behind a changed token is used.
	changed := slices.Clone(turn)
	changed[100]++
	third := generate(t, warm, changed, start)
	require.Equal(t, generate(t, cold, changed, start).ids, third.ids)
	require.EqualValues(t, 100, third.finish.Usage.CachedTokens)

	// The very same prompt again: one token is computed.
	again := generate(t, warm, turn, start)
	require.Equal(t, second.ids, again.ids)
	require.EqualValues(t, len(turn)-1, again.finish.Usage.CachedTokens)

	apart := &cladev1.GenerateStart{MaxTokens: start.MaxTokens, Sampling: start.Sampling, PrefixCache: ptr(false)}
	require.Zero(t, generate(t, warm, turn, apart).finish.Usage.CachedTokens)
	stats := warm.Stats()
	require.Positive(t, stats.PrefixCachedTokens)
	require.Greater(t, stats.PrefixQueriedTokens, stats.PrefixCachedTokens)
}

func TestWhatACancelledRequestComputedIsKept(t *testing.T) {
	e := openConfig(t, tinyPaths[testModel], engine.Config{Context: 512, PrefillChunk: 64, PrefixBytes: 1 << 30})
	start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(100)), Sampling: &cladev1.Sampling{IgnoreEos: ptr(true)}}
	prompt := tiny.Prompt(300, 256)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := e.Generate(ctx, &plugin.GenerateJob{Start: start, IDs: prompt}, func(r *cladev1.GenerateResponse) error {
		if r.GetStep() != nil {
			cancel()
		}
		return nil
	})
	require.Error(t, err)
	start.MaxTokens = ptr(uint32(4))
	require.EqualValues(t, 299, generate(t, e, prompt, start).finish.Usage.CachedTokens)
}

func TestTheBudgetOfKeptBeginningsHolds(t *testing.T) {
	const budget = 200_000
	before := mlx.LiveHandles()
	e := openConfig(t, tinyPaths[testModel], engine.Config{Context: 512, PrefillChunk: 64, PrefixBytes: budget})
	start := &cladev1.GenerateStart{MaxTokens: ptr(uint32(4))}
	generate(t, e, []int32{1, 2, 3}, start)
	base := e.Stats().Memory.ActiveBytes
	for i := range int32(12) {
		prompt := tiny.Prompt(200, 256)
		prompt[0] = i
		generate(t, e, prompt, start)
		require.LessOrEqual(t, e.Stats().Memory.ActiveBytes, base+budget)
	}
	require.NoError(t, e.Close())
	require.Equal(t, before, mlx.LiveHandles())
}
