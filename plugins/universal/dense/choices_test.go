package dense

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

func choiceStart(choice, tokens uint32) *cladev1.GenerateStart {
	return &cladev1.GenerateStart{
		MaxTokens: &tokens, Choice: &choice,
		Sampling: &cladev1.Sampling{Temperature: ptr(1.2), TopP: ptr(0.95), Seed: ptr(uint64(77)), IgnoreEos: ptr(true)},
	}
}

// n choices at once are rows of one batch: the prompt is computed once, and each is what it is alone.
func TestChoicesShareTheirPromptAndAreWhatEachIsAlone(t *testing.T) {
	const choices, tokens = 5, 12
	prompt := tiny.Prompt(300, 256)
	alone := open(t, tinyPaths[testModel], mlx.Float32, 64)
	e := openConfig(t, tinyPaths[testModel], engine.Config{PrefillChunk: 64, Rows: choices, Queue: 8, PrefixBytes: 1 << 30})
	answers := make([]answer, choices)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = generate(t, e, prompt, choiceStart(uint32(i), tokens)) })
	}
	wg.Wait()
	cached := 0
	for i, a := range answers {
		require.Equal(t, generate(t, alone, prompt, choiceStart(uint32(i), tokens)).ids, a.ids, "choice %d", i)
		for _, b := range answers[:i] {
			require.NotEqual(t, a.ids, b.ids)
		}
		cached += int(a.finish.Usage.CachedTokens)
	}
	require.Equal(t, (choices-1)*(len(prompt)-1), cached, "all but one take the prompt from the first")
}

// The choice that computes the prompt goes, the others come through.
func TestChoicesOutliveTheOneThatComputesThePrompt(t *testing.T) {
	const choices = 4
	prompt := tiny.Prompt(400, 256)
	want := generate(t, open(t, tinyPaths[testModel], mlx.Float32, 64), prompt, choiceStart(1, 6)).ids
	e := openConfig(t, tinyPaths[testModel], engine.Config{PrefillChunk: 8, Rows: choices, Queue: 8, PrefixBytes: 1 << 30})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		var once sync.Once
		ended <- e.Generate(ctx, &plugin.GenerateJob{Start: choiceStart(0, 6), IDs: prompt}, func(*cladev1.GenerateResponse) error {
			once.Do(func() { close(started) })
			return nil
		})
	}()
	<-started
	var wg sync.WaitGroup
	for range choices - 1 {
		wg.Go(func() { require.Equal(t, want, generate(t, e, prompt, choiceStart(1, 6)).ids) })
	}
	cancel()
	wg.Wait()
	if err := <-ended; err != nil { // it may have been done before
		require.Equal(t, contract.Cancelled, contract.KindOf(err))
	}
}
