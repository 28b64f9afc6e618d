package serve

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	openaigo "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func client(t *testing.T, url, key string) openaigo.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return openaigo.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: transport}))
}

func params() openaigo.ChatCompletionNewParams {
	return openaigo.ChatCompletionNewParams{
		Model:    "tiny",
		Messages: []openaigo.ChatCompletionMessageParamUnion{openaigo.SystemMessage("Be brief."), openaigo.UserMessage("Capital of France?")},
	}
}

func TestOfficialClientStreamsAChat(t *testing.T) {
	engine := newFake("The capital", " of France", " is Paris.")
	_, url := serveFake(t, Options{APIKey: "k"}, map[string]*fakeEngine{"tiny": engine})
	c := client(t, url, "k")
	p := params()
	p.Temperature = openaigo.Float(0.5)
	p.Seed = openaigo.Int(-7)
	p.Stop = openaigo.ChatCompletionNewParamsStopUnion{OfStringArray: []string{"END"}}
	p.StreamOptions = openaigo.ChatCompletionStreamOptionsParam{IncludeUsage: openaigo.Bool(true)}
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	acc := openaigo.ChatCompletionAccumulator{}
	var pieces []string
	for stream.Next() {
		chunk := stream.Current()
		acc.AddChunk(chunk)
		if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != "" {
			pieces = append(pieces, chunk.Choices[0].Delta.Content)
		}
	}
	require.NoError(t, stream.Err())
	require.Equal(t, engine.words, pieces)
	require.Equal(t, "The capital of France is Paris.", acc.Choices[0].Message.Content)
	require.EqualValues(t, "stop", acc.Choices[0].FinishReason)
	require.EqualValues(t, 3, acc.Usage.PromptTokens)
	require.EqualValues(t, 6, acc.Usage.TotalTokens)
	require.Equal(t, 0.5, *engine.settings.Temperature)
	seed := int64(-7)
	require.Equal(t, uint64(seed), *engine.settings.Seed)
	require.Equal(t, []string{"END"}, engine.settings.Stop)
	require.Equal(t, "system", engine.messages[0]["role"])
	require.Equal(t, "Capital of France?", engine.messages[1]["content"])
}

func TestOfficialClientGetsAnAnswerWithLogprobs(t *testing.T) {
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": newFake("Par", "is")})
	c := client(t, url, "unused")
	p := params()
	p.Logprobs = openaigo.Bool(true)
	p.TopLogprobs = openaigo.Int(1)
	r, err := c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "Paris", r.Choices[0].Message.Content)
	require.Len(t, r.Choices[0].Logprobs.Content, 2)
	require.Equal(t, "Par", r.Choices[0].Logprobs.Content[0].Token)
	require.Equal(t, []int64{'P', 'a', 'r'}, r.Choices[0].Logprobs.Content[0].Bytes)
	require.Len(t, r.Choices[0].Logprobs.Content[0].TopLogprobs, 1)
	require.Contains(t, r.RawJSON(), `"device":"cpu-test"`)
	models, err := c.Models.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, "tiny", models.Data[0].ID)
	one, err := c.Models.Get(t.Context(), "tiny")
	require.NoError(t, err)
	require.Contains(t, one.RawJSON(), `"device":"cpu-test"`)
}

func TestErrorInMidStreamIsTheLastEventAndNotSuccess(t *testing.T) {
	engine := newFake("The")
	engine.err = contract.Errorf(contract.PluginCrashed, "universal", "killed by signal 9").WithNext("try again")
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	c := client(t, url, "k")
	stream := c.Chat.Completions.NewStreaming(t.Context(), params())
	var text strings.Builder
	for stream.Next() {
		if ch := stream.Current().Choices; len(ch) > 0 {
			text.WriteString(ch[0].Delta.Content)
		}
	}
	require.Equal(t, "The", text.String())
	require.ErrorContains(t, stream.Err(), "killed by signal 9")
}

func TestErrorBeforeTheFirstTokenKeepsItsStatus(t *testing.T) {
	engine := newFake()
	engine.err = contract.Errorf(contract.Busy, "tiny", "the queue is full")
	_, url := serveFake(t, Options{}, map[string]*fakeEngine{"tiny": engine})
	c := client(t, url, "k")
	stream := c.Chat.Completions.NewStreaming(t.Context(), params())
	require.False(t, stream.Next())
	var e *openaigo.Error
	require.True(t, errors.As(stream.Err(), &e))
	require.Equal(t, http.StatusTooManyRequests, e.StatusCode)
	require.Equal(t, "1", e.Response.Header.Get("Retry-After"))
	require.Equal(t, "busy", e.Code)
}
