package qwen35

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// stored gives a subject's layers that attend a format.
func stored(s enginetest.Subject, f kv.Format) enginetest.Subject {
	read := s.Graph.Read
	s.Graph.Read = func(a *artifact.Artifact, c artifact.Config) (engine.Blueprint, error) {
		b, err := read(a, c)
		for i := range b.Layout.Caches {
			if b.Layout.Caches[i].Heads > 0 {
				b.Layout.Caches[i].Format = f
			}
		}
		return b, err
	}
	return s
}

func bothCodes(kind kv.Kind, k, v, group, start int) kv.Format {
	return kv.Format{Keys: kv.Code{Kind: kind, Bits: k, Group: group}, Values: kv.Code{Kind: kind, Bits: v, Group: group}, Start: start}
}

// A head's drafts are checked against the caches as they are stored: answers are those of plain decoding under the same scheme, in every
// scheme, also behind what the prefix cache gave back, in blocks, and while the caches go over to codes.
func TestAnswersWithAHeadAreThoseOfPlainDecodingUnderEveryScheme(t *testing.T) {
	native := map[string][][]int32{}
	for scheme, f := range map[string]kv.Format{
		"native": {}, "affine8": bothCodes(kv.Affine, 8, 8, 32, 0), "affine4": bothCodes(kv.Affine, 4, 4, 32, 0),
		"turbo": bothCodes(kv.Turbo, 4, 3, 0, 0), "affine4 from 40 on": bothCodes(kv.Affine, 4, 4, 32, 40),
	} {
		for _, name := range []string{"qwen35-agrees", "qwen35-hf-mtp"} {
			t.Run(scheme+" "+name, func(t *testing.T) {
				s := stored(headed(name, onKernels(t), engine.Config{PrefillChunk: 64, Rows: 8, Queue: 64, PrefixBytes: 1 << 30, KVStart: f.Start}), f)
				plain := s
				plain.Draft, plain.Config = enginetest.Draft{}, engine.Config{PrefillChunk: 512, KVStart: f.Start}
				wishes := enginetest.Wishes(t, plain.Open(t), 12)
				for _, w := range wishes {
					native[scheme] = append(native[scheme], w.Want)
				}
				for _, paging := range []bool{false, true} {
					s.Config.Paging = paging
					e := s.Open(t)
					for range 2 {
						ids, errs := enginetest.AskAll(e, wishes)
						for i, w := range wishes {
							require.NoError(t, errs[i])
							require.Equal(t, w.Want, ids[i], "request %d, paging %v", i, paging)
						}
					}
					stats := e.Stats()
					t.Logf("paging %v: %d of %d drafts accepted in %d rounds", paging, stats.AcceptedTokens, stats.DraftedTokens, stats.DraftRounds)
					require.Positive(t, stats.DraftedTokens)
					require.Zero(t, stats.FailedEvaluations)
					if name == "qwen35-agrees" {
						require.Greater(t, 2*stats.AcceptedTokens, stats.DraftedTokens)
					}
				}
			})
		}
	}
	require.NotEqual(t, native["native"], native["affine4"], "a scheme changes something")
}

// A head that has not seen what the prefix cache gave back drafts on from the first token that is computed.
func TestAHeadDraftsBehindARestoredBeginning(t *testing.T) {
	s := headed("qwen35-agrees", onKernels(t), engine.Config{PrefillChunk: 64})
	ids := tiny.Prompt(300, 256)
	_, cold := enginetest.Generate(t, s.Open(t), ids, greedy(100))
	s.Config.PrefixBytes = 1 << 28
	warm := s.Open(t)
	enginetest.Generate(t, warm, ids[:290], greedy(4))
	_, restored := enginetest.Generate(t, warm, ids, greedy(100))
	require.Greater(t, restored.Usage.CachedTokens, uint32(200))
	t.Logf("accepted %d of %d cold, %d of %d behind %d tokens of the cache", cold.Usage.Accepted, cold.Usage.Drafted,
		restored.Usage.Accepted, restored.Usage.Drafted, restored.Usage.CachedTokens)
	require.Greater(t, restored.Usage.Accepted*10, restored.Usage.Drafted*8)
}
