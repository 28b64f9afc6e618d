package serve

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	anthropicgo "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/chat/toolcall"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

func messagesClient(t *testing.T, url, key string) anthropicgo.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return anthropicgo.NewClient(option.WithBaseURL(url), option.WithAPIKey(key), option.WithMaxRetries(0), option.WithHTTPClient(&http.Client{Transport: transport}))
}

// thinker answers with a thought, a text and a call.
func thinker() *fakeEngine {
	e := newFake()
	e.deltas = []generate.Delta{
		{Reasoning: "I nee"},
		{Reasoning: "d it."},
		{Text: "Let me "},
		{Text: "look."},
		{Calls: []generate.ToolCall{{ID: "abc123def", Call: toolcall.Call{Name: "get_weather", Arguments: `{"city":"Köln"}`, Repairs: []string{"trailing commas"}}}}},
	}
	return e
}

func messageParams() anthropicgo.MessageNewParams {
	return anthropicgo.MessageNewParams{
		Model: "tiny", MaxTokens: 64,
		System: []anthropicgo.TextBlockParam{{Text: "x-anthropic-billing-header: cch=1234"}, {Text: "Be brief."}},
		Messages: []anthropicgo.MessageParam{
			anthropicgo.NewUserMessage(anthropicgo.NewTextBlock("Weather?")),
			anthropicgo.NewAssistantMessage(anthropicgo.NewThinkingBlock("", "earlier"), anthropicgo.NewToolUseBlock("t1", map[string]any{"city": "Oslo"}, "get_weather")),
			anthropicgo.NewUserMessage(anthropicgo.NewToolResultBlock("t1", "no such city", true), anthropicgo.NewTextBlock("Try Köln")),
		},
		StopSequences: []string{"END"},
		Temperature:   anthropicgo.Float(0.5),
		Tools: []anthropicgo.ToolUnionParam{{OfTool: &anthropicgo.ToolParam{
			Name: "get_weather", Description: anthropicgo.String("d"),
			InputSchema: anthropicgo.ToolInputSchemaParam{Properties: map[string]any{"city": map[string]any{"type": "string"}}},
		}}},
		Thinking: anthropicgo.ThinkingConfigParamOfEnabled(1024),
	}
}

func TestOfficialAnthropicClientStreamsThoughtsTextAndCalls(t *testing.T) {
	engine := thinker()
	_, url := serveFake(t, Options{APIKey: "k"}, map[string]*fakeEngine{"tiny": engine})
	c := messagesClient(t, url, "k")
	stream := c.Messages.NewStreaming(t.Context(), messageParams())
	var message anthropicgo.Message
	var names []string
	for stream.Next() {
		e := stream.Current()
		names = append(names, e.Type)
		require.NoError(t, message.Accumulate(e))
	}
	require.NoError(t, stream.Err())
	require.Equal(t, []string{
		"message_start", "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
		"content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
		"content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
	}, names)
	require.Len(t, message.Content, 3)
	require.Equal(t, "I need it.", message.Content[0].Thinking)
	require.Equal(t, "Let me look.", message.Content[1].Text)
	require.Equal(t, "get_weather", message.Content[2].Name)
	require.JSONEq(t, `{"city":"Köln"}`, string(message.Content[2].Input))
	require.EqualValues(t, "tool_use", message.StopReason)

	got := engine.conversation
	require.True(t, *got.Thinking)
	require.Equal(t, "Be brief.", got.Messages[0]["content"], "the billing header is no prompt")
	require.Equal(t, "earlier", got.Messages[2]["reasoning_content"])
	call, ok := got.Messages[2]["tool_calls"].([]any)[0].(*chat.Object)
	require.True(t, ok)
	data, err := json.Marshal(call)
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"t1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Oslo\"}"}}`, string(data))
	require.Equal(t, map[string]any{"role": "tool", "tool_call_id": "t1", "content": "Error: no such city"}, got.Messages[3])
	require.Equal(t, "Try Köln", got.Messages[4]["content"])
	require.JSONEq(t, `[{"type":"function","function":{"name":"get_weather","description":"d","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`, string(got.Tools))
	require.Equal(t, []string{"END"}, engine.settings.Stop)
	require.EqualValues(t, 64, *engine.settings.MaxTokens)
}

func TestOfficialAnthropicClientGetsAMessageAndCountsTokens(t *testing.T) {
	engine := thinker()
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	c := messagesClient(t, url, "k")
	p := messageParams()
	p.ToolChoice, p.Thinking = anthropicgo.ToolChoiceUnionParam{OfAny: &anthropicgo.ToolChoiceAnyParam{}}, anthropicgo.ThinkingConfigParamUnion{}
	m, err := c.Messages.New(t.Context(), p)
	require.NoError(t, err)
	require.Len(t, m.Content, 3)
	require.Equal(t, "abc123def", m.Content[2].ID)
	require.EqualValues(t, 3, m.Usage.InputTokens)
	require.Contains(t, m.RawJSON(), `"device":"cpu-test"`)
	require.True(t, engine.conversation.Held)
	require.Equal(t, generate.AnyTool, engine.prompt.Call, "any forces a call")
	n, err := c.Messages.CountTokens(t.Context(), anthropicgo.MessageCountTokensParams{Model: "tiny", Messages: p.Messages})
	require.NoError(t, err)
	require.EqualValues(t, 3, n.InputTokens)
}

func TestAnthropicErrorsKeepStatusShapeAndField(t *testing.T) {
	engine := newFake("x")
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	for body, want := range map[string]string{
		`{` + hi + `}`:                        "max_tokens: is missing",
		`{"max_tokens":1}`:                    "messages: want at least one",
		`{"max_tokens":1,"foo":2,` + hi + `}`: "foo: unknown or unsupported field",
		`{"max_tokens":1,"messages":[{"role":"system","content":"x"}]}`:                                  "messages[0].role",
		`{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}`:         `messages[0].content[0].type: a block of type "image"`,
		`{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"a","x":1}]}]}`:     "messages[0].content[0].x",
		`{"max_tokens":1,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`: "messages[1]: an answer that is begun",
		`{"max_tokens":1,"tools":[{"type":"web_search_20250305","name":"w"}],` + hi + `}`:                "tools[0].type",
		`{"max_tokens":1,"tool_choice":{"type":"any"},` + hi + `}`:                                       "tool_choice: needs tools",
		`{"max_tokens":1,"thinking":{"type":"maybe"},` + hi + `}`:                                        "thinking.type",
		`{"max_tokens":1,"temperature":-1,` + hi + `}`:                                                   "temperature",
		`[]`: "body", `{`: "body",
	} {
		r := do(t, http.MethodPost, url+"/v1/messages", body)
		require.Equal(t, http.StatusBadRequest, r.status, body)
		var e struct {
			Type  string
			Error struct{ Type, Message string }
		}
		require.NoError(t, json.Unmarshal([]byte(r.body), &e))
		require.Equal(t, "error", e.Type)
		require.Equal(t, "invalid_request_error", e.Error.Type)
		require.Contains(t, e.Error.Message, want, body)
	}
	engine.err = contract.Errorf(contract.PluginCrashed, "universal", "killed by signal 9")
	r := do(t, http.MethodPost, url+"/v1/messages", `{"max_tokens":9,"stream":true,`+hi+`}`)
	require.Equal(t, http.StatusOK, r.status)
	require.Contains(t, r.body, "event: error\ndata: {\"error\":{\"type\":\"api_error\"")
	require.NotContains(t, r.body, "message_stop")
}

// Errors of HTTP's own have the shape of the API that the client speaks, by endpoint or by its header.
func TestAnthropicClientsGetTheirErrorShapeForHTTPsOwnErrors(t *testing.T) {
	_, url := serveFake(t, Options{APIKey: "secret"}, map[string]*fakeEngine{"tiny": newFake("x")})
	for _, tt := range []struct {
		method, path, key, version string
		status                     int
		kind                       string
	}{
		{http.MethodPost, "/v1/messages", "", "", http.StatusUnauthorized, "authentication_error"},
		{http.MethodPost, "/v1/messages/count_tokens", "wrong", "", http.StatusUnauthorized, "authentication_error"},
		{http.MethodGet, "/v1/messages", "secret", "", http.StatusMethodNotAllowed, "invalid_request_error"},
		{http.MethodPost, "/v1/messages/batches", "secret", "", http.StatusNotFound, "not_found_error"},
		{http.MethodPost, "/v1/complete", "secret", "2023-06-01", http.StatusNotFound, "not_found_error"},
		{http.MethodGet, "/v1/models", "", "2023-06-01", http.StatusUnauthorized, "authentication_error"},
		{http.MethodGet, "/v1/models", "", "", http.StatusUnauthorized, ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, url+tt.path, strings.NewReader("{}"))
		require.NoError(t, err)
		if tt.key != "" {
			r.Header.Set("X-Api-Key", tt.key)
		}
		if tt.version != "" {
			r.Header.Set("Anthropic-Version", tt.version)
		}
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		var e struct {
			Type  string
			Error struct{ Type, Message string }
		}
		require.NoError(t, json.NewDecoder(res.Body).Decode(&e))
		require.NoError(t, res.Body.Close())
		require.Equal(t, tt.status, res.StatusCode, tt.path)
		if tt.kind == "" {
			require.Empty(t, e.Type, "OpenAI's shape")
			continue
		}
		require.Equal(t, []string{"error", tt.kind}, []string{e.Type, e.Error.Type}, tt.path)
		require.NotEmpty(t, e.Error.Message)
	}
}

func TestALineThatChangesWithEveryRequestIsSaidCountedAndSwitchable(t *testing.T) {
	const body = `{"max_tokens":4,"system":"x-anthropic-billing-header: cc_version=2.1; cch=1234;\nBe brief.","messages":[{"role":"user","content":"hi"}]}`
	engine := newFake("x")
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	r := do(t, http.MethodPost, url+"/v1/messages", body)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, "Be brief.", engine.messages[0]["content"])
	require.Contains(t, strings.Join(engine.prompt.Notes, "\n"), "x-anthropic-billing-header")
	_, metrics := get(t, url+"/metrics")
	require.Contains(t, metrics, `clade:volatile_headers_total{model_name="tiny",header="x-anthropic-billing-header"} 1`)

	engine = newFake("x")
	_, url = serveFake(t, Options{VolatileHeaders: true}, map[string]*fakeEngine{"tiny": engine})
	require.Equal(t, http.StatusOK, do(t, http.MethodPost, url+"/v1/messages", body).status)
	require.Contains(t, engine.messages[0]["content"], "cch=1234")
	require.Empty(t, engine.prompt.Notes)
}
