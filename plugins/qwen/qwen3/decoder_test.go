package qwen3

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

func decoderSubject(name string, target weights.Target, chunk int) enginetest.Subject {
	s := subject(name, target, chunk)
	s.Graph = DecoderGraph()
	if strings.HasPrefix(name, "qwen3-moe") {
		s.Graph = MoEDecoderGraph()
	}
	return s
}

// Dense, affine, GGUF and mixtures, with the kernels and without: every bit of the logits is the generic graph's, however the prompt is cut; in
// pieces of up to eight tokens the layers are one operation.
func TestTheWrittenGraphHasTheGenericOnesBits(t *testing.T) {
	enginetest.BothWays(t, func(t *testing.T, target weights.Target) {
		for _, g := range slices.Concat(enginetest.Goldens(t, "../testdata/qwen3.json"), enginetest.Goldens(t, "../testdata/qwen3_moe.json")) {
			ids := tiny.Prompt(40, g.Vocab)
			want := enginetest.Logits(t, subject(g.Name, target, 512).Open(t), ids)
			require.Equal(t, want, enginetest.Logits(t, decoderSubject(g.Name, target, 512).Open(t), ids), g.Name)
			if target.Kernels != nil {
				require.Equal(t, want, enginetest.Logits(t, decoderSubject(g.Name, target, 7).Open(t), ids), "%s in chunks", g.Name)
			}
		}
	})
}

// Requests that run together get the tokens that they get alone.
func TestTheWrittenGraphsRowsAreWhatTheyAreAlone(t *testing.T) {
	target := kernelTarget(t)
	wishes := enginetest.Wishes(t, decoderSubject("qwen3-gguf-q4_1.gguf", target, 32).Open(t), 6)
	together := decoderSubject("qwen3-gguf-q4_1.gguf", target, 32)
	together.Config = engine.Config{PrefillChunk: 16, Rows: 4, Queue: 64}
	enginetest.Schedule(t, together.Open(t), wishes, 12, 1)
}

func TestTheWrittenGraphGivesWayWhereItDoesNotWin(t *testing.T) {
	require.Empty(t, decoderSuits(decoderBytes, true))
	require.Equal(t, "it is for weights of up to 512 MiB, these take 513", decoderSuits(decoderBytes+1<<20, true))
	require.Equal(t, "its kernels do not run", decoderSuits(1, false))
}
