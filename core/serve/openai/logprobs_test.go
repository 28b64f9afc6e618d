package openai

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/generate"
)

func TestPartOfACharacterHasItsBytes(t *testing.T) {
	got := oneLogprob(generate.TokenLogprob{Text: "\uFFFD", Bytes: []byte{0xE2, 0x82}})
	require.Equal(t, []int{0xE2, 0x82}, got.Bytes)
	require.Nil(t, oneLogprob(generate.TokenLogprob{}).Bytes, "an id without a token")
}
