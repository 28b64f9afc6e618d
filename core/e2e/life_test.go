package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"
)

// talker is a tiny checkpoint that can chat: byte tokens, a template, and a context long enough to be killed in.
func talker(t *testing.T) string {
	t.Helper()
	dir := checkpoint(t, "llama-f32", func(c map[string]any) { c["max_position_embeddings"] = 16384 })
	vocab := map[string]int{}
	for b := range 256 {
		vocab[byteToken(byte(b))] = b
	}
	write(t, filepath.Join(dir, "tokenizer.json"), map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": []any{}, "normalizer": nil,
		"pre_tokenizer":  map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
		"post_processor": nil,
		"decoder":        map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": []string{},
		},
	})
	write(t, filepath.Join(dir, "tokenizer_config.json"), map[string]any{
		"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}",
	})
	return dir
}

// byteToken spells a byte as byte-level BPE does (GPT-2's bytes_to_unicode).
func byteToken(b byte) string {
	printable := func(b byte) bool { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE }
	if printable(b) {
		return string(rune(b))
	}
	n := 0
	for c := range int(b) {
		if !printable(byte(c)) {
			n++
		}
	}
	return string(rune(256 + n))
}

// server is a running `clade serve`.
type server struct {
	cmd  *exec.Cmd
	url  string
	log  *safeBuffer
	done chan struct{}
}

// safeBuffer is written by a process and read by the test.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var listening = regexp.MustCompile(`listening on (http://\S+)`)

func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	return startServerIn(t, t.TempDir(), args...)
}

// startServerIn starts one whose user has the given home.
func startServerIn(t *testing.T, home string, args ...string) *server {
	t.Helper()
	return startServerOf(t, built.clade, home, args...)
}

// startServerOf is startServerIn with another clade than the tests' own.
func startServerOf(t *testing.T, exe, home string, args ...string) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{log: &safeBuffer{}, done: make(chan struct{})}
	s.cmd = command(t, ctx, append([]string{"serve", "--port", "0"}, args...)...)
	s.cmd.Path, s.cmd.Env = exe, append(s.cmd.Env, "HOME="+home)
	s.cmd.Stderr, s.cmd.Stdout = s.log, s.log
	require.NoError(t, s.cmd.Start())
	go func() { _ = s.cmd.Wait(); close(s.done) }()
	t.Cleanup(func() { cancel(); <-s.done })
	require.Eventually(t, func() bool {
		if m := listening.FindStringSubmatch(s.log.String()); m != nil {
			s.url = m[1]
		}
		select {
		case <-s.done:
			return true
		default:
			return s.url != ""
		}
	}, time.Minute, 20*time.Millisecond)
	require.NotEmpty(t, s.url, s.log.String())
	return s
}

// children are the processes whose parent is pid, by /proc.
func children(t *testing.T, pid int) []int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	var out []int
	for _, path := range dirs {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		after := string(data[bytes.LastIndexByte(data, ')')+1:])
		fields := strings.Fields(after)
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) && fields[0] != "Z" {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			require.NoError(t, err)
			out = append(out, child)
		}
	}
	return out
}

func alive(pid int) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	after := string(data[bytes.LastIndexByte(data, ')')+1:])
	return !strings.HasPrefix(strings.TrimSpace(after), "Z")
}

func chatClient(t *testing.T, s *server) openai.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return openai.NewClient(option.WithBaseURL(s.url+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0), option.WithHTTPClient(&http.Client{Transport: transport}))
}

func ask(tokens int64) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{
		Model: "llama-f32", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")}, MaxTokens: openai.Int(tokens),
	}
	p.SetExtraFields(map[string]any{"ignore_eos": true})
	return p
}

func status(t *testing.T, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode
}

func TestOfficialClientStreamsAChatFromARealPlugin(t *testing.T) {
	s := startServer(t, talker(t))
	c := chatClient(t, s)
	p := ask(20)
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	acc := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		acc.AddChunk(stream.Current())
	}
	require.NoError(t, stream.Err())
	require.EqualValues(t, "length", acc.Choices[0].FinishReason)
	require.EqualValues(t, 20, acc.Usage.CompletionTokens)
	whole, err := c.Chat.Completions.New(t.Context(), ask(20))
	require.NoError(t, err)
	require.Equal(t, whole.Choices[0].Message.Content, acc.Choices[0].Message.Content, "stream and answer agree")
	require.NotEmpty(t, whole.Choices[0].Message.Content)
	require.Contains(t, whole.RawJSON(), `"device":"cpu-`)
}

func TestAStreamGoesOnWhenItsPluginIsKilled(t *testing.T) { streamOverAKill(t) }

// The process that takes over drafts again, from what was generated before too, and changes no token either.
func TestAStreamWithDraftsGoesOnWhenItsPluginIsKilled(t *testing.T) {
	usage := streamOverAKill(t, "--draft", "ngram", "--draft-depth", "6")
	require.Contains(t, usage, `"accepted_prediction_tokens"`)
}

// streamOverAKill kills the plugin in the middle of an answer, which must be that of a server that drafts nothing, and returns the last
// usage.
func streamOverAKill(t *testing.T, more ...string) string {
	t.Helper()
	const tokens = 3000
	model := talker(t)
	s := startServer(t, append([]string{model}, more...)...)
	c := chatClient(t, s)
	plain := c
	if len(more) > 0 {
		plain = chatClient(t, startServer(t, model))
	}
	want, err := plain.Chat.Completions.New(t.Context(), ask(tokens))
	require.NoError(t, err)
	whole, err := c.Chat.Completions.New(t.Context(), ask(tokens))
	require.NoError(t, err)
	require.Equal(t, want.Choices[0].Message.Content, whole.Choices[0].Message.Content)
	stream := c.Chat.Completions.NewStreaming(t.Context(), ask(tokens))
	require.True(t, stream.Next(), "%v", stream.Err())
	plugins := children(t, s.cmd.Process.Pid)
	require.Len(t, plugins, 1)
	require.NoError(t, syscall.Kill(plugins[0], syscall.SIGKILL))
	acc := openai.ChatCompletionAccumulator{}
	for ok := true; ok; ok = stream.Next() {
		acc.AddChunk(stream.Current())
	}
	require.NoError(t, stream.Err())
	require.Equal(t, want.Choices[0].Message.Content, acc.Choices[0].Message.Content)
	require.NotEqual(t, plugins, children(t, s.cmd.Process.Pid))
	require.Equal(t, http.StatusOK, status(t, s.url+"/health"))
	return whole.RawJSON()
}

func TestIdlePluginThatDiesIsStartedAgain(t *testing.T) {
	s := startServer(t, talker(t))
	first := children(t, s.cmd.Process.Pid)
	require.Len(t, first, 1)
	require.NoError(t, syscall.Kill(first[0], syscall.SIGKILL))
	require.Eventually(t, func() bool {
		now := children(t, s.cmd.Process.Pid)
		return len(now) == 1 && now[0] != first[0] && status(t, s.url+"/health") == http.StatusOK
	}, 20*time.Second, 20*time.Millisecond)
}

func TestKilledHostLeavesNoPlugin(t *testing.T) {
	s := startServer(t, talker(t))
	c := chatClient(t, s)
	stream := c.Chat.Completions.NewStreaming(t.Context(), ask(16000))
	require.True(t, stream.Next(), "%v", stream.Err())
	plugins := children(t, s.cmd.Process.Pid)
	require.Len(t, plugins, 1)
	require.NoError(t, s.cmd.Process.Kill())
	require.Eventually(t, func() bool { return !alive(plugins[0]) }, 20*time.Second, 10*time.Millisecond)
	for stream.Next() {
	}
	require.Error(t, stream.Err())
}

func TestTermDrainsAndEndsWithZero(t *testing.T) {
	s := startServer(t, talker(t))
	c := chatClient(t, s)
	stream := c.Chat.Completions.NewStreaming(t.Context(), ask(200))
	require.True(t, stream.Next(), "%v", stream.Err())
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	finish := ""
	for stream.Next() {
		if ch := stream.Current().Choices; len(ch) > 0 && ch[0].FinishReason != "" {
			finish = ch[0].FinishReason
		}
	}
	require.NoError(t, stream.Err())
	require.Equal(t, "length", finish)
	<-s.done
	require.Equal(t, 0, s.cmd.ProcessState.ExitCode(), s.log.String())
}

func TestInterruptEndsARunWith130AndLeavesNoPlugin(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := command(t, ctx, "run", talker(t), "Hello", "--ignore-eos")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	errs := &safeBuffer{}
	cmd.Stderr = errs
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(out).ReadByte()
	require.NoError(t, err, errs.String())
	plugins := children(t, cmd.Process.Pid)
	require.Len(t, plugins, 1)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	err = cmd.Wait()
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), "%v", err)
	require.Equal(t, 130, exit.ExitCode(), errs.String())
	require.False(t, alive(plugins[0]))
	require.NotContains(t, errs.String(), "goroutine")
}
