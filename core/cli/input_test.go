package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

func TestInputThatNeverEndsIsRefusedNotRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // has no such device
	}
	for _, args := range [][]string{{"tokenize", "m", "--text-file", "/dev/zero"}, {"generate", "m", "--ids", "/dev/zero"}, {"template", "m", "--messages", "/dev/zero"}} {
		code, out, errs := run(t, "", args...)
		require.Equal(t, 2, code, args)
		require.Empty(t, out)
		require.Contains(t, errs, "/dev/zero: is larger than the limit of 64.0 MiB")
	}
}

func TestTextThatIsNotUTF8IsRefusedNotReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "latin")
	require.NoError(t, os.WriteFile(file, []byte("caf\xe9"), 0o600))
	for _, args := range [][]string{
		{"tokenize", "m", "--text-file", file},
		{"tokenize", "m", "--text", "caf\xe9"},
		{"score", "m", "--text", file},
		{"run", "m", "caf\xe9"},
		{"generate", "m", "--prompt", "caf\xe9"},
	} {
		code, _, errs := run(t, "", args...)
		require.Equal(t, 2, code, args)
		require.Contains(t, errs, "is not UTF-8 text: byte 3 is 0xe9")
	}
	require.NoError(t, checkText("t", "\ufffd is a character, too"))
}

// A file that is written by renaming would take the place of a device.
func TestLogitsNeverReplaceADeviceAndAreNotComputedForNothing(t *testing.T) {
	dir := t.TempDir()
	require.Equal(t, contract.InvalidArgument, contract.KindOf(checkOutput(os.DevNull)))
	require.Equal(t, contract.InvalidArgument, contract.KindOf(checkOutput(dir)))
	require.Equal(t, contract.NotFound, contract.KindOf(checkOutput(filepath.Join(dir, "none", "x"))))
	require.NoError(t, checkOutput(filepath.Join(dir, "x")))
}

func TestTokenIDsAreWholeNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"[1.5]": `"1.5" is not a token id`, "[1e30]": `"1e30" is not a token id`, "[99999999999]": `"99999999999" is not a token id`,
		`["a"]`: "is not a JSON list of token ids", "[": "is not a JSON list of token ids", "a": `"a" is not a token id`,
	} {
		code, _, errs := run(t, text, "generate", "m", "--ids", "-")
		require.Equal(t, 2, code, text)
		require.Contains(t, errs, want)
		require.NotContains(t, errs, "Go value")
		require.Equal(t, 1, strings.Count(errs, "\n"))
	}
}

func TestMistakesSayWhatIsWrongOnce(t *testing.T) {
	for want, args := range map[string][]string{
		"clade: unknown command \"nosuch\"; see `clade --help`\n":                 {"nosuch"},
		"clade: completion: unknown command \"nosh\" for":                         {"completion", "nosh"},
		"run: accepts between 1 and 2 arg(s), received 0; see `clade run --help`": {"run"},
		"see `clade adapter load --help`":                                         {"adapter", "load", "x", "--nosuch"},
		"takes its value behind =, as in --paging=true":                           {"run", "m", "hi", "--paging", "true"},
	} {
		code, _, errs := run(t, "", args...)
		require.Equal(t, 2, code)
		require.Contains(t, errs, want)
	}
}

// What an error tells may come from a model's file.
func TestAModelsFileNeverCommandsTheTerminalNorFloodsIt(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, artifact.WriteSafetensors(filepath.Join(dir, "model.safetensors"), nil, nil))
	for config, want := range map[string]string{
		`{"model_type":"a\u001b[31mred\u0000\n"}`:               `clade: a\x1b[31mred\x00 : no family takes this`,
		`{"model_type":"` + strings.Repeat("x", 100_000) + `"}`: " [...] ",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
		code, _, errs := run(t, "", "show", dir)
		require.Equal(t, 3, code)
		require.Contains(t, errs, want)
		require.NotContains(t, errs, "\x1b")
		require.Less(t, len(errs), 5000)
	}
	require.Equal(t, "é \\u0085 \\t", plain("é \u0085 \t"))
}
