package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/plugintest/echo"
)

// serving is a person's running server.
type serving struct {
	p   *person
	url string
	cmd *exec.Cmd
	mu  sync.Mutex
	log strings.Builder // what it printed
}

var listeningAt = regexp.MustCompile(`listening on (http://\S+)`)

func (p *person) serve(args ...string) *serving {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, p.exe, append([]string{"serve", "--port", "0", "--log-level", "info"}, args...)...)
	cmd.Env = p.env
	errs, err := cmd.StderrPipe()
	require.NoError(p.t, err)
	require.NoError(p.t, cmd.Start())
	lines, s := make(chan string, 1), &serving{p: p, cmd: cmd}
	go func() {
		for in := bufio.NewScanner(errs); in.Scan(); {
			s.mu.Lock()
			s.log.WriteString(in.Text() + "\n")
			s.mu.Unlock()
			if m := listeningAt.FindStringSubmatch(in.Text()); m != nil {
				lines <- m[1]
			}
		}
		close(lines)
	}()
	p.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		time.AfterFunc(20*time.Second, cancel)
		_ = cmd.Wait() // killed or drained
		cancel()
	})
	select {
	case at, ok := <-lines:
		require.True(p.t, ok, "the server ended")
		s.url = at
		return s
	case <-time.After(time.Minute):
		require.Fail(p.t, "the server does not listen")
	}
	return nil
}

// ask sends one request that is not streamed.
func (s *serving) ask(prompt string, tokens int) (int, string) {
	s.p.t.Helper()
	resp, err := http.Post(s.url+"/v1/chat/completions", "application/json", bytes.NewReader(body(prompt, tokens, false)))
	require.NoError(s.p.t, err)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	require.NoError(s.p.t, err)
	return resp.StatusCode, string(data)
}

func body(prompt string, tokens int, stream bool) []byte {
	data, _ := json.Marshal(map[string]any{
		"messages": []map[string]string{{"role": "user", "content": prompt}}, "max_tokens": tokens, "stream": stream, "ignore_eos": true, "seed": 1,
	})
	return data
}

// stream runs one streamed request to its end and says what went wrong.
func (s *serving) stream(prompt string, tokens int) error {
	resp, err := http.Post(s.url+"/v1/chat/completions", "application/json", bytes.NewReader(body(prompt, tokens, true)))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", resp.Status, data)
	case !strings.Contains(string(data), `"finish_reason":"`) || !strings.HasSuffix(strings.TrimSpace(string(data)), "[DONE]") || strings.Contains(string(data), `"error"`):
		return fmt.Errorf("ended early: %.300s", data)
	}
	return nil
}

// logged is what the server printed so far.
func (s *serving) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// plugin is the version that serves the first model now.
func (s *serving) plugin() string {
	resp, err := http.Get(s.url + "/v1/models")
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	data, _ := io.ReadAll(resp.Body)
	return string(data)
}

// through sends streams, some before and some after an update, and says that none failed and the new version serves.
func (s *serving) through(t *testing.T, streams, tokens int, update func(), now string) {
	t.Helper()
	var wg sync.WaitGroup
	var failed, done atomic.Int32
	var first sync.Once
	why := ""
	send := func(i int) {
		wg.Go(func() {
			err := s.stream(fmt.Sprintf("stream %d", i), tokens)
			done.Add(1)
			if err != nil {
				failed.Add(1)
				first.Do(func() { why = err.Error() })
			}
		})
	}
	for i := range streams / 2 {
		send(i)
	}
	time.Sleep(100 * time.Millisecond)
	update()
	require.Less(t, int(done.Load()), streams/2, "nothing ran through the update")
	for i := streams / 2; i < streams; i++ {
		send(i)
		time.Sleep(3 * time.Second / time.Duration(streams))
	}
	wg.Wait()
	require.Zero(t, failed.Load(), "%s\n%s", why, s.logged())
	require.Eventually(t, func() bool { return strings.Contains(s.plugin(), now) }, 30*time.Second, 100*time.Millisecond, s.plugin())
	require.NoError(t, s.stream("after", tokens))
}

// Where the memory admits both versions, and where it does not and new requests have to queue.
func TestTwoHundredStreamsLiveThroughAHotUpgrade(t *testing.T) {
	for _, c := range []struct{ name, budget, says string }{
		{"both versions fit", "2GiB", "the version before ends with its requests"},
		{"one version fits", "70MiB", "new requests wait for the version before to end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEchoes(t, "0.1.0")
			p := newPerson(t)
			p.trusts("example.org", e.dir, filepath.Join(e.dir, "source"))
			p.ok("plugin", "install", "example.org/echo")
			e.publish("0.2.0")
			model := filepath.Join(t.TempDir(), "parrot")
			require.NoError(t, echo.WriteModel(model, echo.Shape{StepMicros: 10_000}))
			s := p.serve(model, "--memory-budget", c.budget, "--rows", "32")
			require.Contains(t, s.plugin(), "echo 0.1.0")
			s.through(t, 200, 60, func() { require.Contains(t, p.ok("plugin", "update"), "example.org/echo 0.1.0 -> 0.2.0") }, "echo 0.2.0")
			require.Contains(t, s.logged(), c.says)
			require.Eventually(t, func() bool { return len(children(t, s.cmd.Process.Pid)) == 1 }, 10*time.Second, 50*time.Millisecond)
			require.Contains(t, p.ok("plugin", "update"), "0.2.0 is the newest")
			require.Len(t, p.store(), 1, "the old version is gone when nobody runs it")
		})
	}
}
