package loader

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/supervise"
	"github.com/clademl/clade/sdk/contract"
)

var errKilled = contract.Errorf(contract.PluginCrashed, "universal", "the plugin's process %w (SIGKILL)", supervise.ErrKilledFromOutside)

// resumable is a plugin that goes on behind a generated prefix, with room for 16 requests and no waiting between starts.
func resumable(t *testing.T, f *fakePlugin) *Model {
	t.Helper()
	f.options = append(f.options, generatedPrefix)
	m := openFake(t, f)
	m.rows = make(chan struct{}, 16)
	m.breaker.First, m.breaker.Most = time.Microsecond, time.Microsecond
	return m
}

func TestStreamResumesAfterPluginDies(t *testing.T) {
	f := newFake()
	f.tokens, f.crashAfter = ids("abcdefg"), 3
	m := resumable(t, f)
	var text strings.Builder
	r, err := m.Generate(t.Context(), prompt("x"), generate.Settings{}, func(d generate.Delta) error { text.WriteString(d.Text); return nil })
	require.NoError(t, err)
	require.Equal(t, "abcdefg", text.String(), "the client saw one stream")
	require.Equal(t, "abcdefg", r.Text)
	require.Equal(t, ids("abcdefg"), r.IDs)
	require.True(t, r.Provenance.Resumed)
	require.EqualValues(t, 1, f.lastStart.GetGeneratedPrefix(), "the prompt's end")
	starts, _ := f.counts()
	require.Equal(t, 3, starts)
}

func TestAStopStringIsFoundAcrossADeath(t *testing.T) {
	f := newFake()
	f.tokens, f.crashAfter = ids("abcdefg"), 3
	m := resumable(t, f)
	r, err := m.Generate(t.Context(), prompt("x"), generate.Settings{Stop: []string{"cd"}}, drop)
	require.NoError(t, err)
	require.Equal(t, "ab", r.Text)
	require.Equal(t, "cd", r.Stop)
}

func TestADeathBeforeTheFirstTokenIsSurvivedByEveryPlugin(t *testing.T) {
	f := newFake()
	f.tokens = ids("ab")
	var once sync.Once
	f.crash = func([]int32, int) (err error) {
		once.Do(func() { err = errCrash })
		return err
	}
	m := openFake(t, f)
	r, err := m.Generate(t.Context(), prompt("x"), generate.Settings{}, drop)
	require.NoError(t, err)
	require.Equal(t, "ab", r.Text)
}

func TestADeathAfterTheLastTokenLosesNothing(t *testing.T) {
	f := newFake()
	f.tokens, f.crashAfter = ids("ab"), 2
	m := resumable(t, f)
	r, err := m.Generate(t.Context(), prompt("x"), generate.Settings{MaxTokens: new(uint32(2))}, drop)
	require.NoError(t, err)
	require.Equal(t, "ab", r.Text)
	require.Equal(t, generate.FinishLength, r.Finish)
	require.EqualValues(t, 2, r.Usage.GeneratedTokens)
	starts, _ := f.counts()
	require.Equal(t, 1, starts, "nothing was left to generate")
}

func TestAPoisonRequestFailsAndTheOthersFinish(t *testing.T) {
	f := newFake()
	f.tokens = ids("abcdefgh")
	f.crash = func(prompt []int32, sent int) error {
		if prompt[0] == '!' && sent == 3 {
			return errCrash
		}
		return nil
	}
	m := resumable(t, f)
	var wg sync.WaitGroup
	var failed atomic.Int32
	for i := range 16 {
		wg.Go(func() {
			prompt := ids("x")
			if i == 5 {
				prompt = ids("!")
			}
			r, err := m.Generate(t.Context(), generate.Prompt{IDs: prompt}, generate.Settings{}, func(generate.Delta) error {
				time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
				return nil
			})
			if i == 5 {
				require.Equal(t, contract.PluginCrashed, contract.KindOf(err))
				require.ErrorContains(t, err, "ended the process also when it ran alone")
				failed.Add(1)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "abcdefgh", r.Text)
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, failed.Load())
	starts, _ := f.counts()
	require.LessOrEqual(t, starts, 5)
}

func TestRandomKillsChangeNoStream(t *testing.T) {
	f := newFake()
	f.tokens = ids(strings.Repeat("the quick brown fox ", 8))
	m := resumable(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	var killer, wg sync.WaitGroup
	// A kill waits for a token behind the one before: processes that die in a row without any are given up, which is not meant here.
	token := make(chan struct{}, 1)
	killer.Go(func() {
		for kills := 0; kills < 50; kills++ {
			select {
			case <-ctx.Done():
				return
			case <-token:
			}
			time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond)
			select {
			case <-token: // of before
			default:
			}
			f.mu.Lock()
			p := f.processes[len(f.processes)-1]
			f.mu.Unlock()
			p.die(errKilled)
		}
	})
	for i := range 16 {
		wg.Go(func() {
			r, err := m.Generate(t.Context(), prompt(fmt.Sprintf("%d", i)), generate.Settings{}, func(generate.Delta) error {
				select {
				case token <- struct{}{}:
				default:
				}
				time.Sleep(100 * time.Microsecond)
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, f.tokens, r.IDs)
		})
	}
	wg.Wait()
	cancel()
	killer.Wait()
}

func TestASuspectWaitsWithItsContext(t *testing.T) {
	var c court
	first, err := c.enter(t.Context(), false, "m")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.enter(ctx, true, "m")
	require.Equal(t, contract.Cancelled, contract.KindOf(err))
	require.False(t, first.leave())
	suspect, err := c.enter(t.Context(), true, "m")
	require.NoError(t, err)
	_, err = c.enter(ctx, false, "m")
	require.Equal(t, contract.Cancelled, contract.KindOf(err), "others wait while it is on trial")
	suspect.acquit()
	other, err := c.enter(t.Context(), false, "m")
	require.NoError(t, err)
	require.False(t, suspect.leave())
	require.False(t, other.leave())
}
