package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// caller is a tiny model that answers whatever ends in a newline with two tool calls in MiniCPM5's form.
func caller(t *testing.T, vocab int) string {
	t.Helper()
	pieces := []string{
		`<function name="get_weather">`, `<param name="city">`, `<![CDATA[a < b & "Paris"]]>`, `</param>`, `</function>`, `<function name="noop"></function>`, "<|im_end|>",
	}
	next, at := map[int]int{'\n': tiny.ByteVocab}, tiny.ByteVocab
	for range pieces[1:] {
		next[at] = at + 1
		at++
	}
	model := tiny.Speaker("caller", vocab, next)
	model.Config["eos_token_id"] = at
	dir, err := model.Write(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, tiny.WriteByteTokenizer(dir, pieces...))
	path := filepath.Join(dir, "tokenizer.json")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var tokenizer map[string]any
	require.NoError(t, json.Unmarshal(data, &tokenizer))
	for _, added := range tokenizer["added_tokens"].([]any) {
		if token := added.(map[string]any); token["content"] != "<|im_end|>" {
			token["special"] = false // they are text
		}
	}
	write(t, path, tokenizer)
	template, err := os.ReadFile(filepath.Join(repository(), "core", "chat", "testdata", "minicpm5.jinja"))
	require.NoError(t, err)
	write(t, filepath.Join(dir, "tokenizer_config.json"), map[string]any{"chat_template": string(template), "eos_token": "<|im_end|>"})
	return dir
}

// completion is what of a chat completion is looked at.
type completion struct {
	Choices []struct {
		FinishReason string `json:"finish_reason"`
		Message      struct {
			Content   string
			ToolCalls []struct {
				ID       string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
	}
	Usage struct {
		PromptTokens int `json:"prompt_tokens"`
	}
}

func (s *server) complete(t *testing.T, ask map[string]any) (got completion) {
	t.Helper()
	body, err := json.Marshal(ask)
	require.NoError(t, err)
	resp, err := http.Post(s.url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode, string(data))
	require.NoError(t, json.Unmarshal(data, &got))
	return got
}

// MiniCPM5 through host and plugin: a llama of the exact dimensions is the dedicated family, which does not think unless it is asked to, and calls
// tools in its own form, two in a row, with what XML would have to escape.
func TestMiniCPM5CallsToolsAndDoesNotThinkUnasked(t *testing.T) {
	exe := changedUniversal(t)
	model := caller(t, smallVocab)
	profile := func(model string) string {
		cmd := command(t, t.Context(), "show", model, "--json")
		cmd.Path = exe
		out, err := cmd.Output()
		require.NoError(t, err)
		var s struct{ Profile string }
		require.NoError(t, json.Unmarshal(out, &s))
		return s.Profile
	}
	require.Equal(t, "minicpm5-dedicated", profile(model))
	require.Equal(t, "universal-dense", profile(caller(t, smallVocab+1)), "one token more is another model")

	s := startServerOf(t, exe, t.TempDir(), model, "--context", "4096")
	tool := func(name string, properties map[string]any) map[string]any {
		return map[string]any{"type": "function", "function": map[string]any{"name": name, "parameters": map[string]any{"type": "object", "properties": properties}}}
	}
	ask := map[string]any{
		"messages": []any{map[string]any{"role": "user", "content": "How is the weather?"}}, "max_tokens": 40, "temperature": 0,
		"tools": []any{tool("get_weather", map[string]any{"city": map[string]any{"type": "string"}}), tool("noop", map[string]any{})},
	}
	got := s.complete(t, ask)
	require.Equal(t, "tool_calls", got.Choices[0].FinishReason)
	calls := got.Choices[0].Message.ToolCalls
	require.Len(t, calls, 2)
	require.Equal(t, "get_weather", calls[0].Function.Name)
	require.JSONEq(t, `{"city":"a < b & \"Paris\""}`, calls[0].Function.Arguments)
	require.Equal(t, "noop", calls[1].Function.Name)
	require.JSONEq(t, `{}`, calls[1].Function.Arguments)

	for _, on := range []bool{false, true} {
		ask["chat_template_kwargs"] = map[string]any{"enable_thinking": on}
		if tokens := s.complete(t, ask).Usage.PromptTokens; on {
			require.NotEqual(t, got.Usage.PromptTokens, tokens)
		} else {
			require.Equal(t, got.Usage.PromptTokens, tokens, "off is what nobody has to ask for")
		}
	}

	// What the tools answered goes back into the family's template.
	delete(ask, "chat_template_kwargs")
	ask["messages"] = append(ask["messages"].([]any), map[string]any{"role": "assistant", "content": "", "tool_calls": []any{map[string]any{
		"id": calls[0].ID, "type": "function", "function": map[string]any{"name": "get_weather", "arguments": calls[0].Function.Arguments},
	}}}, map[string]any{"role": "tool", "tool_call_id": calls[0].ID, "content": "rain"})
	again := s.complete(t, ask)
	require.Greater(t, again.Usage.PromptTokens, got.Usage.PromptTokens)
}
