package chat

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestMessagesReadAsOpenAIClientsSendThem(t *testing.T) {
	got, err := ParseMessages([]byte(`[
		{"role": "system", "content": "S"},
		{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "\ud83d\ude00\ud800"}]},
		{"role": "assistant", "content": null, "tool_calls": [{"function": {"z": 1, "a": 2}}]},
		{"role": "tool", "tool_call_id": "1"}]`))
	require.NoError(t, err)
	require.Len(t, got, 4)
	require.Equal(t, "a\U0001F600\uFFFD", got[1]["content"])
	require.Equal(t, "", got[2]["content"])
	require.Equal(t, "", got[3]["content"])
	call := got[2]["tool_calls"].([]any)[0].(*Object)
	fn, _ := call.Get("function")
	require.Equal(t, []string{"z", "a"}, fn.(*Object).Keys())
	data, err := json.Marshal(call)
	require.NoError(t, err)
	require.Equal(t, `{"function":{"z":1,"a":2}}`, string(data))
}

func TestMessagesRefusedByPlace(t *testing.T) {
	for in, want := range map[string]struct {
		kind contract.Kind
		text string
	}{
		`{}`:                          {contract.InvalidArgument, "messages: must be a list"},
		`[]`:                          {contract.InvalidArgument, "messages: the list is empty"},
		`[{"role":"user"}] x`:         {contract.InvalidArgument, "messages: cannot be read"},
		`[{"role":"user"`:             {contract.InvalidArgument, "unexpected EOF"},
		`[1]`:                         {contract.InvalidArgument, "messages[0]: is not an object"},
		`[{"content":"x"}]`:           {contract.InvalidArgument, "messages[0].role: must be a string"},
		`[{"role":"u","content":{}}]`: {contract.InvalidArgument, "messages[0].content: must be"},
		`[{"role":"u","content":[{"type":"image_url","image_url":{}}]}]`: {
			contract.UnsupportedOption, `messages[0].content[0]: a part of type "image_url" is not supported`,
		},
		`[{"role":"u","content":[{"type":"text"}]}]`:                                     {contract.InvalidArgument, "messages[0].content[0].text"},
		`[{"role":"u","x":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}]`: {contract.InvalidArgument, "nested more than"},
	} {
		_, err := ParseMessages([]byte(in))
		require.ErrorContains(t, err, want.text, in)
		require.Equal(t, want.kind, contract.KindOf(err), in)
	}
}

func FuzzParseMessages(f *testing.F) {
	f.Add(`[{"role":"user","content":"x"}]`)
	f.Add(`[{"role":"user","content":[{"type":"text","text":"x"}]}]`)
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseMessages([]byte(s))
		if err != nil {
			return
		}
		tpl, err := NewTemplate("{{ messages }}{{ messages | tojson }}", nil)
		require.NoError(t, err)
		_, err = tpl.Render(m, RenderOptions{})
		require.NoError(t, err)
	})
}
