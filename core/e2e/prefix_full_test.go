//go:build full

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"
)

// turn asks and says when the first token came, what was cached of how much, and the answer.
func turn(t *testing.T, c openai.Client, messages []openai.ChatCompletionMessageParamUnion) (first time.Duration, cached, prompt int64, answer string) {
	t.Helper()
	p := openai.ChatCompletionNewParams{Messages: messages, MaxTokens: openai.Int(24), StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}}
	p.SetExtraFields(map[string]any{"ignore_eos": true})
	began := time.Now()
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	acc := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		if ch := stream.Current().Choices; first == 0 && len(ch) > 0 && ch[0].Delta.Content != "" {
			first = time.Since(began)
		}
		acc.AddChunk(stream.Current())
	}
	require.NoError(t, stream.Err())
	return first, acc.Usage.PromptTokensDetails.CachedTokens, acc.Usage.PromptTokens, acc.Choices[0].Message.Content
}

// The second turn of a conversation of 4,000 tokens computes less than a twentieth of them, and begins within a tenth of the time; so it
// does after a restart, from the disk, and another conversation with the same beginning begins where that ends.
func TestTheSecondTurnOfALongConversationComputesWhatIsNew(t *testing.T) {
	home, model := t.TempDir(), smollm2(t)
	long := strings.Repeat("The lighthouse keeper writes down the wind, the tide and the ships that pass. ", 250)
	system := openai.SystemMessage("You keep a log. " + long)
	opening := []openai.ChatCompletionMessageParamUnion{system, openai.UserMessage("What do you write down?")}

	s := startServerIn(t, home, model, "--prefix-disk", "1GiB", "--context", "5120")
	c := chatClient(t, s)
	cold, cached, prompt, answer := turn(t, c, opening)
	require.Zero(t, cached)
	require.Greater(t, prompt, int64(3900))
	second := append(opening[:2:2], openai.AssistantMessage(answer), openai.UserMessage("And at night?"))
	warm, cached, prompt, want := turn(t, c, second)
	t.Logf("cold: %v; second turn: %v, %d of %d tokens cached, ratio %.3f", cold, warm, cached, prompt, warm.Seconds()/cold.Seconds())
	require.Less(t, float64(prompt-cached), 0.05*float64(prompt))
	require.Less(t, warm.Seconds(), 0.1*cold.Seconds())
	require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
	<-s.done

	s = startServerIn(t, home, model, "--prefix-disk", "1GiB", "--context", "5120")
	c = chatClient(t, s)
	warm, cached, prompt, again := turn(t, c, second)
	t.Logf("after a restart: %v, %d of %d tokens cached, ratio %.3f", warm, cached, prompt, warm.Seconds()/cold.Seconds())
	require.Equal(t, want, again)
	require.Less(t, float64(prompt-cached), 0.05*float64(prompt))
	require.Less(t, warm.Seconds(), 0.2*cold.Seconds())
	other := []openai.ChatCompletionMessageParamUnion{system, openai.UserMessage("Who reads the log?")}
	_, cached, prompt, _ = turn(t, c, other)
	t.Logf("another conversation: %d of %d tokens cached", cached, prompt)
	require.Less(t, prompt-cached, int64(24), "all before the last common message border")
}
