package e2e

import (
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"
)

// Eight clients of one model are answered at once, each with what it gets alone.
func TestRequestsOfOneModelRunTogetherAndGetWhatTheyGetAlone(t *testing.T) {
	const clients, tokens = 8, 300
	s := startServer(t, talker(t), "--context", "1024")
	client := chatClient(t, s)
	request := func(i int) openai.ChatCompletionNewParams {
		p := ask(tokens)
		p.Seed, p.Temperature = openai.Int(int64(i/2)), openai.Float(float64(i%2))
		p.SetExtraFields(map[string]any{"ignore_eos": true, "priority": i % 3})
		return p
	}
	stream := func(i int) (text string, first, last time.Time) {
		chunks := client.Chat.Completions.NewStreaming(t.Context(), request(i))
		for chunks.Next() {
			if c := chunks.Current(); len(c.Choices) > 0 && c.Choices[0].Delta.Content != "" {
				if text == "" {
					first = time.Now()
				}
				text += c.Choices[0].Delta.Content
			}
		}
		if err := chunks.Err(); err != nil {
			t.Error(err)
		}
		return text, first, time.Now()
	}
	want := make([]string, clients)
	for i := range want {
		want[i], _, _ = stream(i)
		require.NotEmpty(t, want[i])
	}
	var wg sync.WaitGroup
	got, firsts, lasts := make([]string, clients), make([]time.Time, clients), make([]time.Time, clients)
	for i := range clients {
		wg.Go(func() { got[i], firsts[i], lasts[i] = stream(i) })
	}
	wg.Wait()
	require.Equal(t, want, got)
	together := 0
	for i := range clients {
		if firsts[i].Before(lasts[0]) && firsts[0].Before(lasts[i]) {
			together++
		}
	}
	require.Equal(t, clients, together, "requests that overlap with the first")
}
