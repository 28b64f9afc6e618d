package openai

import (
	"encoding/json"
	"testing"

	"github.com/clademl/clade/sdk/contract"
)

// FuzzChatBody holds that a body is understood completely or refused as the caller's mistake.
func FuzzChatBody(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"stream":true,"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"assistant","content":"x","tool_calls":null}],"logit_bias":{"1":-100},"stop":["a"],"seed":-1,"logprobs":true,"top_logprobs":2}`,
		`{"messages":[{"role":"user","content":"x"}],"lora":[{"id":"a","scale":0.5},{"id":"b"}]}`, `{"messages":[{"role":"user","content":"x"}],"lora":"a+b:0.5"}`,
		`{"messages":[{}],"n":2}`, `{"a":1,"a":2}`, `[]`, `{"messages":null}`, `{"temperature":1e999}`, `{}}`, "{\"\xff\":1}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := parseChat(body)
		if err != nil {
			if k := contract.KindOf(err); k != contract.InvalidArgument && k != contract.UnsupportedOption {
				t.Fatalf("kind %s of %v", k, err)
			}
			if status, _ := bodyOf(err); status != 400 {
				t.Fatalf("status %d of %v", status, err)
			}
			return
		}
		var tree map[string]json.RawMessage
		if err := json.Unmarshal(body, &tree); err != nil {
			t.Fatalf("accepted what is not an object: %v", err)
		}
		for name := range tree {
			if fields[name] == nil {
				t.Fatalf("field %q was ignored", name)
			}
		}
		for _, m := range q.conversation.Messages {
			if _, ok := m["content"].(string); !ok || m["role"] == nil {
				t.Fatalf("message without role or text: %v", m)
			}
		}
	})
}
