package tokenizer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTokenBytesOfPartsOfACharacter(t *testing.T) {
	tok := readTokenizer(t, "gpt2")
	var got []byte
	for _, b := range []byte("€") {
		id, ok := tok.ID(string(byteRunes[b]))
		require.True(t, ok)
		require.Equal(t, []byte{b}, tok.TokenBytes(id))
		got = append(got, tok.TokenBytes(id)...)
	}
	require.Equal(t, "€", string(got))
	fallback := readTokenizer(t, "unigram-bytes")
	id, ok := fallback.ID("<0xE2>")
	require.True(t, ok)
	require.Equal(t, []byte{0xE2}, fallback.TokenBytes(id))
	require.Nil(t, tok.TokenBytes(-1))
	require.Nil(t, tok.TokenBytes(1<<30))
}

// TestTokenBytesJoinedAreTheText: for decoders that do nothing at the ends of a text.
func TestTokenBytesJoinedAreTheText(t *testing.T) {
	c := readCorpus(t)
	for _, name := range []string{"gpt2", "llama3", "o200k", "cl100k", "deepseek", "roberta", "meta-never", "unigram-scripts"} {
		tok := readTokenizer(t, name)
		for i := range 200 {
			ids, err := tok.Encode(c.text(i), false)
			require.NoError(t, err)
			var joined []byte
			for _, id := range ids {
				joined = append(joined, tok.TokenBytes(id)...)
			}
			require.Equal(t, tok.Decode(ids, false), validText(string(joined)), name)
		}
	}
}
