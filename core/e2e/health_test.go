package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"
)

// healthLimit is what a dead or stuck engine may go unnoticed.
const healthLimit = 2 * time.Second

// unhealthyWithin says after how long /health was not 200 any more; the limit is for the answer too.
func unhealthyWithin(t *testing.T, s *server) time.Duration {
	t.Helper()
	begun := time.Now()
	for status(t, s.url+"/health") == http.StatusOK {
		require.Less(t, time.Since(begun), 10*healthLimit, "a dead engine is healthy")
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(begun)
}

// A plugin that is stopped, idle or in the middle of an answer, is told by /health within two seconds; when it goes on, so does everything.
func TestHealthFailsWithinTwoSecondsOfAStuckPlugin(t *testing.T) {
	s := startServer(t, talker(t))
	pid := children(t, s.cmd.Process.Pid)[0]
	c := chatClient(t, s)
	want, err := c.Chat.Completions.New(t.Context(), ask(400))
	require.NoError(t, err)
	for _, busy := range []bool{false, true} {
		require.Equal(t, http.StatusOK, status(t, s.url+"/health"))
		answer := make(chan *openai.ChatCompletion, 1)
		if busy {
			stream := c.Chat.Completions.NewStreaming(t.Context(), ask(400))
			require.True(t, stream.Next(), "%v", stream.Err())
			acc := &openai.ChatCompletionAccumulator{}
			acc.AddChunk(stream.Current())
			go func() {
				for stream.Next() {
					acc.AddChunk(stream.Current())
				}
				if stream.Err() != nil {
					t.Error(stream.Err())
				}
				answer <- &acc.ChatCompletion
			}()
		}
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		took := unhealthyWithin(t, s)
		require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
		require.Less(t, took, healthLimit, "busy: %v", busy)
		require.Eventually(t, func() bool { return status(t, s.url+"/health") == http.StatusOK }, 20*time.Second, 20*time.Millisecond)
		if busy {
			require.Equal(t, want.Choices[0].Message.Content, (<-answer).Choices[0].Message.Content)
		}
		require.Equal(t, []int{pid}, children(t, s.cmd.Process.Pid), "it was given its time")
	}
}

func TestHealthFailsWithinTwoSecondsOfADeadPluginThatCannotBeStarted(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "universal")
	require.NoError(t, os.Mkdir(folder, 0o755))
	files, err := os.ReadDir(filepath.Join(built.root, "plugins", "universal"))
	require.NoError(t, err)
	for _, f := range files {
		require.NoError(t, os.Link(filepath.Join(built.root, "plugins", "universal", f.Name()), filepath.Join(folder, f.Name())))
	}
	s := startServer(t, talker(t), "--config", note(t, "plugins: {dirs: ["+filepath.Dir(folder)+"]}"))
	pids := children(t, s.cmd.Process.Pid)
	require.Len(t, pids, 1)
	exe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pids[0]), "exe"))
	require.NoError(t, err)
	require.Equal(t, filepath.Join(folder, "clade-universal"), exe)
	require.NoError(t, os.Remove(exe))
	require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
	require.Less(t, unhealthyWithin(t, s), healthLimit)
	time.Sleep(healthLimit / 4)
	require.Equal(t, http.StatusServiceUnavailable, status(t, s.url+"/health"), "and goes on failing")
}
