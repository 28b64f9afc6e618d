package openai

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABodyThatIsNoUTF8ObjectIsRefusedInPlainWords(t *testing.T) {
	for body, want := range map[string]string{
		"null": "not a JSON object: found null",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"caf\xe9\"}]}": "body: is not UTF-8 text",
	} {
		_, err := parseChat([]byte(body))
		require.ErrorContains(t, err, want)
	}
}
