package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	anthropicgo "github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// template is one that Qwen published, from the jinja module's own testdata.
func template(t *testing.T, name string) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ardanlabs/jinja").Output()
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "testdata", "templates", name))
	require.NoError(t, err)
	return string(data)
}

// speaker is a model that thinks where its template lets it, says a sentence and calls get_weather as its family writes calls.
func speaker(t *testing.T, graph string) string {
	t.Helper()
	name, thought, call := "Qwen3-8B-Q8_0.jinja", []string{"\n", "<think>", "\nThey want the weather.\n", "</think>", "\n\n"},
		[]string{"\n{\"name\": \"get_wea", "ther\", \"arguments\": {\"city\": \"Pa", "ris\", \"days\": 2}}\n"}
	if strings.HasPrefix(graph, "qwen3.5") { // whose template opens the thought itself
		name, thought = "Qwen3.5-35B-A3B-Q8_0.jinja", []string{"\n", "They want the weather.\n", "</think>", "\n\n"}
		call = []string{
			"\n<function=get_wea", "ther>\n<parameter=city>\nPa", "ris\n</parameter>\n", "<parameter=days>\n2\n</para", "meter>\n</function>\n",
		}
	}
	answer := append([]string{"\n\n", "Let me ", "look.", "<tool_call>"}, append(call, "</tool_call>", "<|im_end|>")...)
	path, err := tiny.Scripted(graph, template(t, name), "<|im_end|>", thought, answer, []string{"<|im_start|>", "<|im_end|>"}).Write(t.TempDir())
	require.NoError(t, err)
	return path
}

const weather = `{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}`

func weatherTool(t *testing.T) openai.ChatCompletionToolUnionParam {
	var schema shared.FunctionParameters
	require.NoError(t, json.Unmarshal([]byte(weather), &schema))
	return openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "get_weather", Parameters: schema})
}

// spoken is what a client got of an answer.
type spoken struct{ reasoning, text, name, arguments, finish string }

// overOpenAI streams an answer and puts it together.
func overOpenAI(t *testing.T, s *server, model string, tools bool, extra map[string]any) spoken {
	t.Helper()
	p := openai.ChatCompletionNewParams{
		Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Weather in Paris?")}, Temperature: openai.Float(0),
	}
	if tools {
		p.Tools = []openai.ChatCompletionToolUnionParam{weatherTool(t)}
	}
	p.SetExtraFields(extra)
	c := chatClient(t, s)
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	var out spoken
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			var delta struct {
				Reasoning string `json:"reasoning_content"`
			}
			require.NoError(t, json.Unmarshal([]byte(choice.Delta.RawJSON()), &delta))
			out.reasoning, out.text = out.reasoning+delta.Reasoning, out.text+choice.Delta.Content
			for _, call := range choice.Delta.ToolCalls {
				out.name, out.arguments = out.name+call.Function.Name, out.arguments+call.Function.Arguments
			}
			out.finish += choice.FinishReason
		}
	}
	require.NoError(t, stream.Err(), s.log)
	return out
}

// overAnthropic does the same with a message.
func overAnthropic(t *testing.T, s *server, model string, thinking anthropicgo.ThinkingConfigParamUnion) spoken {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c := anthropicgo.NewClient(anthropicoption.WithBaseURL(s.url), anthropicoption.WithAPIKey("none"), anthropicoption.WithMaxRetries(0),
		anthropicoption.WithHTTPClient(&http.Client{Transport: transport}))
	var schema struct{ Properties map[string]any }
	require.NoError(t, json.Unmarshal([]byte(weather), &schema))
	stream := c.Messages.NewStreaming(t.Context(), anthropicgo.MessageNewParams{
		Model: anthropicgo.Model(model), MaxTokens: 200, Temperature: anthropicgo.Float(0), Thinking: thinking,
		Messages: []anthropicgo.MessageParam{anthropicgo.NewUserMessage(anthropicgo.NewTextBlock("Weather in Paris?"))},
		Tools: []anthropicgo.ToolUnionParam{{OfTool: &anthropicgo.ToolParam{
			Name: "get_weather", InputSchema: anthropicgo.ToolInputSchemaParam{Properties: schema.Properties, Required: []string{"city"}},
		}}},
	})
	var m anthropicgo.Message
	for stream.Next() {
		require.NoError(t, m.Accumulate(stream.Current()))
	}
	require.NoError(t, stream.Err(), s.log)
	out := spoken{finish: string(m.StopReason)}
	for _, b := range m.Content {
		out.reasoning, out.text, out.name, out.arguments = out.reasoning+b.Thinking, out.text+b.Text, out.name+b.Name, out.arguments+string(b.Input)
	}
	return out
}

// What a model of each family writes comes to clients as thought, text and call, streamed, through both APIs; whether it thinks is the
// request's choice before the server's.
func TestQwensThoughtsAndCallsReachClients(t *testing.T) {
	for _, graph := range []string{"qwen3", "qwen3.5", "qwen3-moe", "qwen3.5-moe"} {
		t.Run(graph, func(t *testing.T) {
			model := speaker(t, graph)
			name, args := filepath.Base(model), []string{model}
			if strings.HasPrefix(graph, "qwen3.5") {
				args = append(args, "--draft", "auto")
			}
			s := startServer(t, args...)
			called := spoken{"They want the weather.", "Let me look.", "get_weather", `{"city":"Paris","days":2}`, "tool_calls"}
			silent := called
			silent.reasoning = ""
			flat := func(got spoken) spoken {
				got.arguments = strings.ReplaceAll(got.arguments, ": ", ":")
				got.arguments = strings.ReplaceAll(got.arguments, ", ", ",")
				return got
			}
			require.Equal(t, called, flat(overOpenAI(t, s, name, true, nil)), "the template's default is to think")
			require.Equal(t, called, flat(overOpenAI(t, s, name, true, object{"reasoning_effort": "low"})))
			require.Equal(t, silent, flat(overOpenAI(t, s, name, true, object{"reasoning_effort": "none"})))
			require.Equal(t, silent, flat(overOpenAI(t, s, name, true, object{"chat_template_kwargs": object{"enable_thinking": false}})))
			require.Equal(t, called, flat(overOpenAI(t, s, name, true, object{"chat_template_kwargs": object{"enable_thinking": false}, "reasoning_effort": "high"})))
			plain := overOpenAI(t, s, name, false, object{"reasoning_effort": "none"})
			require.Contains(t, plain.text, "Let me look.<tool_call>", "without tools a call is text")
			require.Equal(t, "stop", plain.finish)
			code, body := asked(t, s, "/v1/chat/completions", object{"model": name, "messages": []object{{"role": "user", "content": "x"}}, "reasoning_effort": "wild"})
			require.Equal(t, http.StatusBadRequest, code)
			require.Contains(t, body, "reasoning_effort")

			called.finish, silent.finish = "tool_use", "tool_use"
			require.Equal(t, called, flat(overAnthropic(t, s, name, anthropicgo.ThinkingConfigParamOfEnabled(1024))))
			require.Equal(t, silent, flat(overAnthropic(t, s, name, anthropicgo.ThinkingConfigParamUnion{OfDisabled: &anthropicgo.ThinkingConfigDisabledParam{}})))
		})
	}
}

// The command line shows the answer alone; what it took, drafts included, where it is asked for.
func TestRunThinksAsItIsToldAndSaysWhatItTook(t *testing.T) {
	model := speaker(t, "qwen3.5")
	for effort, tokens := range map[string]int{"none": 9, "high": 12} {
		r := clade(t, "run", model, "Weather?", "--temperature", "0", "--reasoning-effort", effort, "--draft", "mtp", "--stats")
		require.Zero(t, r.code, r.errors)
		require.True(t, strings.HasPrefix(r.out, "Let me look.<tool_call>\n<function=get_weather>"), r.out)
		require.Contains(t, r.errors, fmt.Sprintf("answer %d tokens", tokens))
	}
}

// A head's drafts change no token, and are counted in usage and in the server's metrics.
func TestAHeadsDraftsAreCounted(t *testing.T) {
	alphabet := strings.Split("abcdefghijklmnopqrstuvwxyza", "")
	model := checkpointOf(t, tiny.Scripted("qwen3.5", "{{ messages[0].content }}", "<|im_end|>", alphabet))
	ids := note(t, "[97, 98, 99]")
	type answer struct {
		TokenIDs []int32 `json:"token_ids"`
		Usage    struct {
			Speculation *struct{ Drafted, Accepted, Rounds int }
		}
	}
	for _, sampling := range [][]string{{"--temperature", "0"}, {"--temperature", "8", "--seed", "5"}} {
		var plain, drafted answer
		args := append([]string{"generate", model, "--ids", ids, "--max-tokens", "400", "--ignore-eos", "--json"}, sampling...)
		jsonOf(t, &plain, args...)
		jsonOf(t, &drafted, append(args, "--draft", "auto")...)
		require.Equal(t, plain.TokenIDs, drafted.TokenIDs)
		require.Nil(t, plain.Usage.Speculation)
		require.NotNil(t, drafted.Usage.Speculation, "drafts were tried")
		require.Positive(t, drafted.Usage.Speculation.Accepted)
	}
	s := startServer(t, model, "--draft", "checkpoint-mtp")
	code, body := asked(t, s, "/v1/completions", object{"model": filepath.Base(model), "prompt": "abc", "max_tokens": 400, "temperature": 0})
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, "defghij")
	require.Regexp(t, `"accepted_prediction_tokens":[1-9]`, body)
	require.Regexp(t, `vllm:spec_decode_num_accepted_tokens_total(\{[^}]*\})? [1-9]`, metricsOf(t, s))

	r := clade(t, "generate", checkpointOf(t, tiny.Qwen35("qwen35-hf")[0]), "--ids", ids, "--draft", "mtp")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.errors, "qwen35-hf has no MTP head: none of its tensors is named mtp.*")
}

func checkpointOf(t *testing.T, c tiny.Checkpoint) string {
	t.Helper()
	path, err := c.Write(t.TempDir())
	require.NoError(t, err)
	return path
}
