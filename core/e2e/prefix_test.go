package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"
)

// chatOf is a conversation with the talker.
func chatOf(system string, turns ...string) openai.ChatCompletionNewParams {
	p := ask(8)
	p.Messages = []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(system)}
	for i, text := range turns {
		if i%2 == 0 {
			p.Messages = append(p.Messages, openai.UserMessage(text))
		} else {
			p.Messages = append(p.Messages, openai.AssistantMessage(text))
		}
	}
	return p
}

// kept is what `clade cache list` tells.
func kept(t *testing.T, home string) (files int, bytes int64) {
	t.Helper()
	r := cladeIn(t, home, "cache", "list", "--json")
	require.Equal(t, 0, r.code, r.errors)
	var list []struct {
		Files int
		Bytes int64
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &list))
	for _, k := range list {
		files, bytes = files+k.Files, bytes+k.Bytes
	}
	return files, bytes
}

// After a restart, another chat with the same system prompt begins where that ends: what was computed of it is on disk, readable by its
// user alone.
func TestThePrefixCacheOnDiskSurvivesARestart(t *testing.T) {
	home, model := t.TempDir(), talker(t)
	system := strings.Repeat("You are a talker who says little. ", 40)
	first := startServerIn(t, home, model, "--prefix-disk", "64MiB")
	c := chatClient(t, first)
	answer, err := c.Chat.Completions.New(t.Context(), chatOf(system, "Hello?"))
	require.NoError(t, err)
	require.Zero(t, answer.Usage.PromptTokensDetails.CachedTokens)
	require.NoError(t, first.cmd.Process.Signal(os.Interrupt))
	<-first.done
	require.Equal(t, 0, first.cmd.ProcessState.ExitCode(), first.log.String())

	files, bytes := kept(t, home)
	require.Greater(t, files, 5)
	require.Greater(t, bytes, int64(1000))
	info, err := os.Stat(filepath.Join(built.root, "cache", "clade", "prefix")) // as environ has it
	require.NoError(t, err)
	require.EqualValues(t, 0o700, info.Mode().Perm())

	second := startServerIn(t, home, model, "--prefix-disk", "64MiB")
	c = chatClient(t, second)
	other, err := c.Chat.Completions.New(t.Context(), chatOf(system, "Something else altogether."))
	require.NoError(t, err)
	shared := len("system: \n") + len(system) // a token is a byte
	require.GreaterOrEqual(t, other.Usage.PromptTokensDetails.CachedTokens, int64(shared), "of %d", shared)
	cold := startServerIn(t, home, model, "--prefix-cache", "0")
	c = chatClient(t, cold)
	want, err := c.Chat.Completions.New(t.Context(), chatOf(system, "Something else altogether."))
	require.NoError(t, err)
	require.Equal(t, want.Choices[0].Message.Content, other.Choices[0].Message.Content)

	require.Contains(t, cladeIn(t, home, "cache", "clear").out, "freed")
	files, _ = kept(t, home)
	require.Zero(t, files)
}

func TestAPrefixDiskThatCannotBeUsedIsSaidAtOnce(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "file"), "no folder")
	ids := write(t, filepath.Join(t.TempDir(), "ids"), "1 2 3")
	config := write(t, filepath.Join(t.TempDir(), "config.yaml"), "model:\n  prefix_disk_dir: "+file+"\n")
	r := clade(t, "generate", talker(t), "--ids", ids, "--prefix-disk", "1MiB", "--config", config)
	require.Equal(t, 2, r.code)
	require.Contains(t, r.errors, file)
	require.Contains(t, r.errors, "model.prefix_disk_dir")
	r = clade(t, "generate", talker(t), "--ids", ids, "--prefix-disk", "1MiB", "--prefix-cache", "0")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.errors, "--prefix-cache")
}

// Two requests that differ in nothing but a client's accounting share everything, as /v1/messages counts it.
func TestAVolatileClientHeaderDoesNotKillThePrefix(t *testing.T) {
	s := startServer(t, talker(t))
	ask := func(cch string) (input, cached float64, raw string) {
		body := map[string]any{"model": "llama-f32", "max_tokens": 4, "messages": []any{map[string]any{"role": "user", "content": "What now?"}}, "system": []any{
			map[string]any{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch=" + cch + ";"},
			map[string]any{"type": "text", "text": strings.Repeat("You are an agent that writes code. ", 60)},
		}}
		data, err := json.Marshal(body)
		require.NoError(t, err)
		r, err := http.Post(s.url+"/v1/messages", "application/json", bytes.NewReader(data))
		require.NoError(t, err)
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, http.StatusOK, r.StatusCode, string(text))
		var out struct {
			Usage struct {
				Input float64 `json:"input_tokens"`
				Read  float64 `json:"cache_read_input_tokens"`
			}
		}
		require.NoError(t, json.Unmarshal(text, &out))
		return out.Usage.Input, out.Usage.Read, string(text)
	}
	_, cached, _ := ask("eb6c6")
	require.Zero(t, cached)
	input, cached, raw := ask("0aaa9")
	require.GreaterOrEqual(t, cached/(input+cached), 0.99)
	require.Contains(t, raw, "x-anthropic-billing-header: a line of the system prompt", "it is said")
}
