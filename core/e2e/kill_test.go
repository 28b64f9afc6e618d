package e2e

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"
)

// streams of one round, and the tokens of each.
const (
	killStreams = 16
	killTokens  = 400
)

// kills is how many times a plugin is killed: a few, or as many as CLADE_KILLS says (50 in make test-full).
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("CLADE_KILLS")
	if text == "" {
		return 5
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

// killed is one request of a round: half are greedy, half sampled with a seed; prompts differ in length.
func killed(i, prompt int) openai.ChatCompletionNewParams {
	p := ask(killTokens)
	p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(strings.Repeat("request "+strconv.Itoa(i)+" ", prompt/10+i))}
	p.Seed, p.Temperature = openai.Int(int64(100+i)), openai.Float(float64(i%2))
	return p
}

// round is 16 streams at once.
type round struct {
	begun, over, tokens atomic.Int64 // streams that have a token, that ended, and pieces that came
	texts               [killStreams]string
	errs                [killStreams]error
	wg                  sync.WaitGroup
}

func startRound(t *testing.T, c openai.Client, prompt int) *round {
	t.Helper()
	r := &round{}
	for i := range killStreams {
		r.wg.Go(func() {
			defer r.over.Add(1)
			stream := c.Chat.Completions.NewStreaming(t.Context(), killed(i, prompt))
			for stream.Next() {
				if ch := stream.Current().Choices; len(ch) > 0 && ch[0].Delta.Content != "" {
					if r.texts[i] == "" {
						r.begun.Add(1)
					}
					r.texts[i] += ch[0].Delta.Content
					r.tokens.Add(1)
				}
			}
			r.errs[i] = stream.Err()
		})
	}
	return r
}

// kill waits until the round is at the wanted place, then kills the plugin. It says whether streams were there in the wanted phase: all
// of them decoding, or some still without a token.
func (r *round) kill(t *testing.T, s *server, prefill bool, rng *rand.Rand) bool {
	t.Helper()
	if !prefill {
		until := int64(killStreams + rng.IntN(killStreams*killTokens/3))
		for r.begun.Load() < killStreams || r.tokens.Load() < until {
			if r.over.Load() == killStreams {
				return false
			}
			time.Sleep(time.Millisecond)
		}
	} else {
		time.Sleep(time.Duration(rng.IntN(int(250 * time.Millisecond))))
	}
	pids := children(t, s.cmd.Process.Pid)
	if len(pids) == 0 {
		return false
	}
	begun, over := r.begun.Load(), r.over.Load()
	if syscall.Kill(pids[0], syscall.SIGKILL) != nil {
		return false
	}
	if prefill {
		return begun < killStreams
	}
	return over < killStreams
}

// Whenever the plugin is killed, no client sees an error and no token changes, greedy or sampled: 16 streams at once, in prefill and
// in decode, with a prefix cache on disk and without any.
func TestAPluginKilledAtAnyMomentChangesNoToken(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	n := kills(t)
	inPrefill := max(2, n*3/10)
	for _, phase := range []struct {
		name   string
		n      int
		prompt int
		args   []string
	}{
		{"prefill", inPrefill, 1500, []string{"--prefix-cache", "0"}},
		{"decode", n - inPrefill, 60, []string{"--prefix-disk", "64MiB"}},
	} {
		t.Run(phase.name, func(t *testing.T) {
			s := startServer(t, append([]string{talker(t), "--rows", "16", "--context", "2560"}, phase.args...)...)
			c := chatClient(t, s)
			cold := startRound(t, c, phase.prompt)
			cold.wg.Wait()
			for i := range killStreams {
				require.NoError(t, cold.errs[i])
				require.GreaterOrEqual(t, len(cold.texts[i]), 128)
			}
			hits := 0
			for tries := 0; hits < phase.n; tries++ {
				require.Less(t, tries, 6*phase.n+6, "the plugin was not killed in time: %d of %d", hits, phase.n)
				r := startRound(t, c, phase.prompt)
				if r.kill(t, s, phase.name == "prefill", rng) {
					hits++
				}
				r.wg.Wait()
				for i := range killStreams {
					require.NoError(t, r.errs[i], "stream %d; %s", i, s.log)
					require.Equal(t, cold.texts[i], r.texts[i], "stream %d", i)
				}
			}
			t.Logf("%d kills in %s, %d streams of %d tokens each", hits, phase.name, killStreams, killTokens)
		})
	}
}
