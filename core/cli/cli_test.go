package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// run runs one command line in a home of its own.
func run(t *testing.T, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	home := t.TempDir()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "CLADE_") {
			t.Setenv(name, "")
			require.NoError(t, os.Unsetenv(name))
		}
	}
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "config"))
	var o, e bytes.Buffer
	code = Main(context.Background(), "test-build", args, Streams{In: strings.NewReader(stdin), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

func TestVersionSaysWhatWasBuilt(t *testing.T) {
	code, out, errs := run(t, "", "version")
	require.Zero(t, code, errs)
	require.Contains(t, out, "clade "+Version)
	require.Contains(t, out, "test-build")
	_, out, _ = run(t, "", "version", "--json")
	require.True(t, json.Valid([]byte(out)))
}

func TestLaterVerbsNameTheirVersion(t *testing.T) {
	verbs := [][]string{}
	for _, l := range later {
		verbs = append(verbs, []string{l.use, "x", "--any-flag"})
	}
	for _, v := range verbs {
		code, out, errs := run(t, "", v...)
		require.Equal(t, 2, code, v)
		require.Empty(t, out)
		require.Contains(t, errs, nextVersion)
		require.Equal(t, 1, strings.Count(errs, "\n"))
	}
}

func TestConfigPrintsEverySettingWithItsSource(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte("serve: {port: 99}\n"), 0o600))
	code, out, errs := run(t, "", "config", "--config", file, "--log-level", "error", "--json")
	require.Zero(t, code, errs)
	var values []struct{ Key, Value, Source string }
	require.NoError(t, json.Unmarshal([]byte(out), &values))
	got := map[string][2]string{}
	for _, v := range values {
		got[v.Key] = [2]string{v.Value, v.Source}
	}
	require.Equal(t, [2]string{"99", "file"}, got["serve.port"])
	require.Equal(t, [2]string{"error", "flag"}, got["log_level"])
	require.Equal(t, [2]string{"127.0.0.1", "default"}, got["serve.host"])
	_, out, _ = run(t, "", "config", "path", "--config", file)
	require.Equal(t, file+"\n", out)
	code, _, errs = run(t, "", "config", "--config", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, 5, code)
	require.Contains(t, errs, "no such configuration file")
}

func TestMistakesOnTheCommandLineAreTwoAndOneLine(t *testing.T) {
	for _, args := range [][]string{
		{"fly"},
		{"run"},
		{"run", "m", "p", "q"},
		{"--nonsense"},
		{"generate", "m"},
		{"generate", "m", "--prompt", "a", "--ids", "b"},
		{"score", "m", "--ids", "f"},
		{"score", "m", "--text", "f", "--sequence-length", "1"},
		{"tokenize", "m"},
		{"template", "m"},
		{"run", "m", "p", "--temperature", "hot"},
		{"run", "m", "p", "--temperature", "-2"},
		{"serve"},
		{"serve", "--port", "x", "m"},
		{"bench", "m", "--decode", "1"},
		{"generate", "m", "--prompt", "x", "--logprobs", "3"},
		{"run", "m", "p", "--context", "-1"},
		{"run", "m", "p", "--dtype", "int8"},
		{"run", "m", "p", "--plugin", "/x"},
	} {
		code, out, errs := run(t, "", args...)
		require.Equal(t, 2, code, "%v: %s", args, errs)
		require.Empty(t, out)
		require.True(t, strings.HasPrefix(errs, "clade: "), errs)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	}
}

func TestIDsAreReadAsAListOrAsWords(t *testing.T) {
	for text, want := range map[string][]int32{"[1, 2,3]": {1, 2, 3}, "1 2\n3": {1, 2, 3}, "1,2": {1, 2}, " 7 ": {7}} {
		a := &app{Streams: Streams{In: strings.NewReader(text)}}
		got, err := a.readIDs("-")
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "[]", "[1.5]", "a b", "99999999999", `{"ids":[1]}`} {
		_, err := (&app{Streams: Streams{In: strings.NewReader(text)}}).readIDs("-")
		require.Error(t, err, text)
	}
}

func TestPromptComesFromArgumentPipeOrPerson(t *testing.T) {
	tests := []struct {
		args     []string
		stdin    string
		terminal bool
		want     string
		chat     bool
	}{
		{args: []string{"hi"}, stdin: "ignored", want: "hi"},
		{args: []string{"-"}, stdin: "piped\n", want: "piped"},
		{stdin: "piped\nlines\n", want: "piped\nlines"},
		{terminal: true, chat: true},
		{args: []string{"hi"}, terminal: true, want: "hi"},
	}
	for _, tt := range tests {
		a := &app{Streams: Streams{In: strings.NewReader(tt.stdin), InTerminal: tt.terminal}}
		prompt, chat, err := a.promptOf(tt.args)
		require.NoError(t, err)
		require.Equal(t, tt.want, prompt)
		require.Equal(t, tt.chat, chat)
	}
	_, _, err := (&app{Streams: Streams{In: strings.NewReader("")}}).promptOf(nil)
	require.ErrorContains(t, err, "PROMPT")
}

// The values are Python's: x = [1, 2, 3, 6]; exp(mean), exp(mean) * std(ddof=1) / sqrt(n).
func TestPerplexityHasTheDeltaMethodsError(t *testing.T) {
	var l losses
	for _, x := range []float64{1, 2, 3, 6} {
		l.add(x)
	}
	ppl, stderr, mean := l.perplexity()
	require.InDelta(t, 3.0, mean, 1e-12)
	require.InDelta(t, 20.085536923187668, ppl, 1e-9)
	require.InDelta(t, 21.69485943124602, stderr, 1e-9)
	one := losses{}
	one.add(1)
	_, stderr, _ = one.perplexity()
	require.True(t, math.IsNaN(stderr))
}

func TestCompletionIsThere(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, out, errs := run(t, "", "completion", shell)
		require.Zero(t, code, errs)
		require.Contains(t, out, "clade")
	}
}
