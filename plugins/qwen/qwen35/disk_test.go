package qwen35

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/engine/prefix"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// onDisk keeps beginnings in dir too.
func onDisk(t *testing.T, dir string) engine.Config {
	files, err := prefix.OpenDisk(dir, 1<<30)
	require.NoError(t, err)
	return engine.Config{DType: mlx.Float32, PrefillChunk: 64, PrefixBytes: 1 << 30, Disk: &engine.Disk{
		Disk: files, Label: "tiny", Identity: func(context.Context) (prefix.Identity, error) { return prefix.Identity{"tiny"}, nil },
	}}
}

// A state on disk is gone on with only from where it was captured: after a restart a chat's next turn and another chat with the same
// beginning do, with the tokens that they have cold, and a damaged file costs no more than the tokens behind it.
func TestStatesOutliveTheProcessOnDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "prefix")
	cold := open(t, engine.Config{PrefillChunk: 512})
	from := func(borders ...uint32) *cladev1.GenerateStart {
		start := greedy(20)
		start.RestorePoints = borders
		return start
	}
	chat := tiny.Prompt(440, 256)
	first := open(t, onDisk(t, dir))
	answer, _ := enginetest.Generate(t, first, chat, from(300))
	require.NoError(t, first.Close(), "what waits is written")

	next := slices.Concat(chat, answer, []int32{7, 7, 7})
	other := slices.Concat(chat[:300], tiny.Prompt(90, 251))
	wantNext, _ := enginetest.Generate(t, cold, next, greedy(20))
	wantOther, _ := enginetest.Generate(t, cold, other, greedy(20))
	second := open(t, onDisk(t, dir))
	got, finish := enginetest.Generate(t, second, other, from(300))
	require.Equal(t, wantOther, got)
	require.EqualValues(t, 300, finish.Usage.CachedTokens, "another chat with the same beginning")
	got, finish = enginetest.Generate(t, second, next, from(300, 440))
	require.Equal(t, wantNext, got)
	require.GreaterOrEqual(t, int(finish.Usage.CachedTokens), 436, "the whole last turn, or its prompt")
	require.Positive(t, second.Stats().PrefixDiskReadTokens)
	require.Zero(t, second.Stats().FailedEvaluations)
	require.NoError(t, second.Close())

	files, err := filepath.Glob(filepath.Join(dir, "*.kv"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		data[len(data)/2] ^= 4
		require.NoError(t, os.WriteFile(file, data, 0o600))
	}
	third := open(t, onDisk(t, dir))
	got, finish = enginetest.Generate(t, third, next, from(300, 440))
	require.Equal(t, wantNext, got)
	require.Zero(t, finish.Usage.CachedTokens)
}
