package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// thinker is a talker whose template can switch reasoning off; asks is what its generation_config.json says.
func thinker(t *testing.T, asks string) string {
	t.Helper()
	dir := talker(t)
	write(t, filepath.Join(dir, "tokenizer_config.json"), map[string]any{
		"chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:" +
			"{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}",
	})
	if asks != "" {
		write(t, filepath.Join(dir, "generation_config.json"), asks)
	}
	return dir
}

// layers is which of those that may set a temperature do, and whether reasoning is off.
type layers struct{ request, server, files, family, off bool }

// temperature is what wins: a cap holds for what is configured in files, never for what a person asked.
func (l layers) temperature() string {
	switch {
	case l.request:
		return "1.1"
	case l.server:
		return "1.6"
	case (l.files || l.family) && l.off:
		return "0.7"
	case l.files:
		return "2.3"
	case l.family:
		return "40"
	}
	return "0"
}

func (l layers) thinking() string {
	if l.off {
		return "off"
	}
	return "on"
}

// Settings of a request, the server's flags, generation_config.json and the family win in this order, for the three ways to ask.
func TestEveryWayToAskSamplesAtTheSameTemperature(t *testing.T) {
	exes := map[bool]string{false: built.clade, true: changedUniversal(t)}
	models := map[bool]string{false: thinker(t, ""), true: thinker(t, `{"do_sample": true, "temperature": 2.3}`)}
	const count = 48
	usual := []string{"--seed", "7", "--max-tokens", fmt.Sprint(count), "--ignore-eos", "--context", "512"}
	say := func(l layers, verb string, more ...string) string {
		args := append([]string{verb, models[l.files]}, more...)
		args = append(append(args, usual...), "--thinking", l.thinking())
		cmd := command(t, t.Context(), args...)
		cmd.Path = exes[l.family]
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		require.NoError(t, err, "%v: %s", args, errs.String())
		return strings.TrimSuffix(string(out), "\n")
	}
	want, seen := map[string]string{}, map[string]string{}
	for _, temperature := range []string{"0", "0.7", "1.1", "1.6", "2.3", "40"} {
		for _, off := range []bool{false, true} {
			l := layers{off: off}
			text := say(l, "run", "Hello", "--temperature", temperature)
			require.NotContains(t, seen, text, "the texts tell temperatures apart")
			want[temperature+l.thinking()], seen[text] = text, temperature
		}
	}
	for mask := range 32 {
		l := layers{mask&1 != 0, mask&2 != 0, mask&4 != 0, mask&8 != 0, mask&16 != 0}
		if l.server {
			continue
		}
		var own []string
		if l.request {
			own = []string{"--temperature", "1.1"}
		}
		require.Equal(t, want[l.temperature()+l.thinking()], say(l, "run", append([]string{"Hello"}, own...)...), "run, %+v", l)
		require.Equal(t, want[l.temperature()+l.thinking()], say(l, "generate", append([]string{"--prompt", "Hello"}, own...)...), "generate, %+v", l)
	}
	for mask := range 8 {
		l := layers{server: mask&1 != 0, files: mask&2 != 0, family: mask&4 != 0}
		args := []string{models[l.files], "--context", "512"}
		if l.server {
			args = append(args, "--temperature", "1.6")
		}
		s := startServerOf(t, exes[l.family], t.TempDir(), args...)
		for more := range 4 {
			l.request, l.off = more&1 != 0, more&2 != 0
			require.Equal(t, want[l.temperature()+l.thinking()], s.answer(t, l, count), "serve, %+v", l)
		}
		require.NoError(t, s.cmd.Process.Signal(os.Interrupt))
		<-s.done
	}
}

// answer asks the server as an OpenAI client does.
func (s *server) answer(t *testing.T, l layers, count int) string {
	t.Helper()
	ask := map[string]any{
		"messages": []any{map[string]any{"role": "user", "content": "Hello"}}, "seed": 7, "max_tokens": count, "ignore_eos": true,
		"chat_template_kwargs": map[string]any{"enable_thinking": !l.off},
	}
	if l.request {
		ask["temperature"] = 1.1
	}
	body, err := json.Marshal(ask)
	require.NoError(t, err)
	resp, err := http.Post(s.url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode, string(data))
	var got struct {
		Choices []struct{ Message struct{ Content string } }
	}
	require.NoError(t, json.Unmarshal(data, &got))
	return got.Choices[0].Message.Content
}
