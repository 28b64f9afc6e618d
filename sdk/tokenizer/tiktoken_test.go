package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestTiktokenRanks(t *testing.T) {
	ranks := "YQ== 0\nYg== 1\nIA== 2\nYWI= 3\nYWJh 4\n"
	tok, err := FromTiktoken([]byte(ranks), []string{"<|end|>", "<|0.00|>"})
	require.NoError(t, err)
	ids, err := tok.Encode("abab aba<|0.00|>", false)
	require.NoError(t, err)
	require.Equal(t, []int32{3, 3, 2, 4, 6}, ids)
	require.Equal(t, "abab aba<|0.00|>", tok.Decode(ids, false))
	require.Equal(t, "abab aba", tok.Decode(ids, true))
	require.Equal(t, 7, tok.VocabSize())
}

func TestBrokenRanksAreRefusedByLine(t *testing.T) {
	for in, want := range map[string]string{
		"": "have 0 tokens", "YQ==": `line 1: "" is not a rank`, "? 0": `line 1: "?" is not a token in base64`, "YQ== 0\nYQ== 1": "line 2: the token",
		"YQ== 1": "have 1 tokens for the ids up to 1", "YQ== -1": "line 1: the id -1",
	} {
		_, err := FromTiktoken([]byte(in), nil)
		require.ErrorContains(t, err, want)
		require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
	}
	_, err := FromTiktoken([]byte("YQ== 0"), []string{""})
	require.ErrorContains(t, err, "special[0]")
}

func FuzzFromTiktoken(f *testing.F) {
	f.Add([]byte("YQ== 0\nYg== 1\nYWI= 2\n"), "<x>")
	f.Add([]byte("gA== 0\n4oI= 1\n"), "")
	f.Fuzz(func(t *testing.T, ranks []byte, special string) {
		tok, err := FromTiktoken(ranks, strings.Fields(special))
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		ids, err := tok.Encode("ab <x> €", true)
		require.NoError(t, err)
		_ = tok.Decode(ids, false)
	})
}
