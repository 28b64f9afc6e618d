package serve

import (
	"net/http"
	"testing"

	openaigo "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/generate"
)

func toolParams() openaigo.ChatCompletionNewParams {
	p := params()
	p.Tools = []openaigo.ChatCompletionToolUnionParam{openaigo.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name: "get_weather", Description: openaigo.String("d"),
		Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}},
	})}
	return p
}

func TestOfficialClientStreamsReasoningAndCalls(t *testing.T) {
	engine := thinker()
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	c := client(t, url, "k")
	p := toolParams()
	p.ReasoningEffort = shared.ReasoningEffortHigh
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	acc := openaigo.ChatCompletionAccumulator{}
	reasoning := ""
	for stream.Next() {
		chunk := stream.Current()
		require.True(t, acc.AddChunk(chunk))
		for _, ch := range chunk.Choices {
			if f, ok := ch.Delta.JSON.ExtraFields["reasoning_content"]; ok {
				reasoning += f.Raw()
			}
			for _, call := range ch.Delta.ToolCalls {
				require.JSONEq(t, `{"city":"Köln"}`, call.Function.Arguments, "a call comes whole: what a client has is JSON at every chunk")
			}
		}
	}
	require.NoError(t, stream.Err())
	require.Equal(t, `"I nee""d it."`, reasoning)
	m := acc.Choices[0].Message
	require.Equal(t, "Let me look.", m.Content)
	require.Equal(t, "get_weather", m.ToolCalls[0].Function.Name)
	require.Equal(t, "abc123def", m.ToolCalls[0].ID)
	require.EqualValues(t, "tool_calls", acc.Choices[0].FinishReason)
	require.Equal(t, "high", engine.conversation.Effort)
	require.Contains(t, string(engine.conversation.Tools), "get_weather")
}

func TestOfficialClientSendsResultsOfToolsBack(t *testing.T) {
	engine := thinker()
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	c := client(t, url, "k")
	p := toolParams()
	r, err := c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	require.Contains(t, r.RawJSON(), `"tool_call_repairs":{"abc123def":["trailing commas"]}`)
	require.Contains(t, r.RawJSON(), `"reasoning_content":"I need it."`)
	p.Messages = append(p.Messages, r.Choices[0].Message.ToParam(), openaigo.ToolMessage("21 degrees", "abc123def"))
	_, err = c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	last := engine.messages[len(engine.messages)-1]
	require.Equal(t, map[string]any{"role": "tool", "content": "21 degrees", "tool_call_id": "abc123def"}, last)
	require.Len(t, engine.messages[len(engine.messages)-2]["tool_calls"], 1)
}

func TestForcedCallReachesTheModel(t *testing.T) {
	engine := thinker()
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	c := client(t, url, "k")
	p := toolParams()
	p.ToolChoice = openaigo.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openaigo.String("required")}
	_, err := c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	require.True(t, engine.conversation.Held)
	require.Equal(t, generate.AnyTool, engine.prompt.Call)
	p.ToolChoice = openaigo.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openaigo.String("none")}
	_, err = c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	require.Empty(t, engine.conversation.Tools, "none offers nothing")
}

func TestNGivesChoicesOfOnePrompt(t *testing.T) {
	engine := newFake("a", "b")
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	c := client(t, url, "k")
	p := params()
	p.N = openaigo.Int(3)
	r, err := c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	require.Len(t, r.Choices, 3)
	require.EqualValues(t, 3, r.Usage.PromptTokens, "the prompt counts once")
	require.EqualValues(t, 6, r.Usage.CompletionTokens)
	seen := map[uint32]bool{}
	for _, choice := range engine.choices {
		seen[*choice] = true
	}
	require.Equal(t, map[uint32]bool{0: true, 1: true, 2: true}, seen)
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	acc := openaigo.ChatCompletionAccumulator{}
	for stream.Next() {
		acc.AddChunk(stream.Current())
	}
	require.NoError(t, stream.Err())
	require.Len(t, acc.Choices, 3)
	require.Equal(t, "ab", acc.Choices[2].Message.Content)
}

func TestOfficialClientCompletesABareText(t *testing.T) {
	engine := newFake("a", "b")
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	c := client(t, url, "k")
	r, err := c.Completions.New(t.Context(), openaigo.CompletionNewParams{
		Model: "tiny", Prompt: openaigo.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"x", "yz"}}, Logprobs: openaigo.Int(1),
	})
	require.NoError(t, err)
	require.Len(t, r.Choices, 2)
	require.Equal(t, "ab", r.Choices[1].Text)
	require.Equal(t, []string{"a", "b"}, r.Choices[0].Logprobs.Tokens)
	require.EqualValues(t, 3, r.Usage.PromptTokens, "one token a character here")
	require.EqualValues(t, 16, *engine.settings.MaxTokens, "OpenAI's default")
	stream := c.Completions.NewStreaming(t.Context(), openaigo.CompletionNewParams{Model: "tiny", Prompt: openaigo.CompletionNewParamsPromptUnion{OfString: openaigo.String("x")}})
	text := ""
	for stream.Next() {
		for _, ch := range stream.Current().Choices {
			text += ch.Text
		}
	}
	require.NoError(t, stream.Err())
	require.Equal(t, "ab", text)
	for body, param := range map[string]string{`{"prompt":"x","echo":true}`: "echo", `{"prompt":"x","suffix":"y"}`: "suffix", `{}`: "prompt", `{"prompt":[]}`: "prompt", `{"prompt":"x","messages":[]}`: "messages"} {
		got := do(t, http.MethodPost, url+"/v1/completions", body)
		require.Equal(t, 400, got.status)
		require.Equal(t, param, *got.Error.Param, body)
	}
	require.Equal(t, 400, do(t, http.MethodPost, url+"/v1/responses", `{}`).status)
}
