package qwen3

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

func chainedSubject(name string, target weights.Target, chunk int) enginetest.Subject {
	s := subject(name, target, chunk)
	s.Graph = ChainedGraph()
	return s
}

// Dense, affine and GGUF, with the kernels and without: every bit of the logits is the generic graph's, however the prompt is cut.
func TestTheWrittenGraphHasTheGenericOnesBits(t *testing.T) {
	enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
		for _, g := range enginetest.Goldens(t, "../testdata/qwen3.json") {
			ids := tiny.Prompt(40, g.Vocab)
			want := enginetest.Logits(t, subject(g.Name, target, 512).Open(t), ids)
			require.Equal(t, want, enginetest.Logits(t, chainedSubject(g.Name, target, 512).Open(t), ids), g.Name)
			if target.Kernels != nil {
				require.Equal(t, want, enginetest.Logits(t, chainedSubject(g.Name, target, 7).Open(t), ids), "%s in chunks", g.Name)
			}
		}
	})
}

// Requests that run together get the tokens that they get alone.
func TestTheWrittenGraphsRowsAreWhatTheyAreAlone(t *testing.T) {
	target := kernelTarget(t)
	wishes := enginetest.Wishes(t, chainedSubject("qwen3-gguf-q4_1.gguf", target, 32).Open(t), 6)
	together := chainedSubject("qwen3-gguf-q4_1.gguf", target, 32)
	together.Config = engine.Config{PrefillChunk: 16, Rows: 4, Queue: 64}
	enginetest.Schedule(t, together.Open(t), wishes, 12, 1)
}

func TestTheWrittenGraphGivesWayWhereItDoesNotWin(t *testing.T) {
	require.Empty(t, chainedSuits(chainedBytes, true))
	require.Equal(t, "it is for weights of up to 128 MiB, these take 129", chainedSuits(chainedBytes+1<<20, true))
	require.Equal(t, "its kernels do not run", chainedSuits(1, false))
}
