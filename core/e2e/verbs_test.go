package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVerbsAgreeOnATalkingModel(t *testing.T) {
	model := talker(t)
	require.Equal(t, "72 105\n", ok(t, "tokenize", model, "--text", "Hi"))
	messages := write(t, filepath.Join(t.TempDir(), "m.json"), `[{"role":"user","content":"Hi"}]`)
	require.Equal(t, "user: Hi\nassistant:", ok(t, "template", model, "--messages", messages))

	answer := ok(t, "run", model, "Hi", "--max-tokens", "8")
	require.True(t, strings.HasSuffix(answer, "\n"))
	var g struct {
		Text     string  `json:"text"`
		TokenIDs []int32 `json:"token_ids"`
	}
	jsonOf(t, &g, "generate", model, "--prompt", "Hi", "--max-tokens", "8", "--json")
	require.Equal(t, answer, g.Text+"\n", "run prints exactly the answer and a newline")

	var raw struct{ Text string }
	jsonOf(t, &raw, "generate", model, "--prompt", "user: Hi\nassistant:", "--raw", "--max-tokens", "8", "--json")
	require.Equal(t, g.Text, raw.Text)

	text := write(t, filepath.Join(t.TempDir(), "t.txt"), strings.Repeat("some words to be predicted. ", 20))
	var p struct {
		Perplexity, Stderr float64
		Tokens, Rows       int
	}
	jsonOf(t, &p, "score", model, "--text", text, "--sequence-length", "100", "--json")
	require.Equal(t, 6, p.Rows)
	require.Equal(t, 560-6, p.Tokens)
	require.Greater(t, p.Perplexity, 1.0)
	require.Greater(t, p.Stderr, 0.0)
}

func TestAPagedModelGivesTheSameTokensAndSaysThatItIsPaged(t *testing.T) {
	model, ids := checkpoint(t, "llama-f32"), write(t, filepath.Join(t.TempDir(), "ids"), strings.Repeat("7 8 9 ", 100))
	var plain, paged struct {
		TokenIDs   []int32 `json:"token_ids"`
		Provenance struct{ Notes []string }
	}
	args := []string{"generate", model, "--ids", ids, "--max-tokens", "24", "--ignore-eos", "--temperature", "1", "--seed", "5", "--json"}
	jsonOf(t, &plain, args...)
	jsonOf(t, &paged, append(args, "--paging")...)
	require.Len(t, plain.TokenIDs, 24)
	require.Equal(t, plain.TokenIDs, paged.TokenIDs)
	require.NotContains(t, strings.Join(plain.Provenance.Notes, " "), "paged")
	require.Contains(t, strings.Join(paged.Provenance.Notes, " "), "layers are paged: blocks of 256 tokens, shared")
	shown := ok(t, "show", model, "--paging")
	require.Contains(t, shown, "blocks of 256 tokens")
	require.Regexp(t, `(?m)paging +true +.*user`, shown)
}

func TestAWindowedModelKeepsNoMoreThanItsWindowAndSaysSo(t *testing.T) {
	model, ids := checkpoint(t, "llama-f32"), write(t, filepath.Join(t.TempDir(), "ids"), strings.Repeat("7 8 9 ", 100))
	var all, windowed struct {
		TokenIDs   []int32 `json:"token_ids"`
		Provenance struct{ Notes []string }
	}
	args := []string{"generate", model, "--ids", ids, "--max-tokens", "24", "--ignore-eos", "--temperature", "1", "--seed", "5", "--json"}
	jsonOf(t, &all, args...)
	jsonOf(t, &windowed, append(args, "--kv-window", "40")...)
	require.Len(t, windowed.TokenIDs, 24)
	require.NotEqual(t, all.TokenIDs, windowed.TokenIDs)
	require.Contains(t, strings.Join(windowed.Provenance.Notes, " "), "kv_window: attention sees the last 40 tokens and the first 4")
	shown := ok(t, "show", model, "--kv-window", "40+8")
	require.Regexp(t, `(?m)kv_window +40 +.*user`, shown)
	require.Regexp(t, `(?m)kv_keep +8 +.*user`, shown)
	require.Contains(t, shown, "attention sees the last 40 tokens and the first 8")
	config := write(t, filepath.Join(t.TempDir(), "clade.yaml"), "model: {kv_window: 30+0}\n")
	require.Regexp(t, `(?m)kv_window +30 +.*user`, ok(t, "show", model, "--config", config))
}

func TestSeedDecidesASampledAnswer(t *testing.T) {
	model := talker(t)
	sample := func(args ...string) string {
		return ok(t, append([]string{"run", model, "Hi", "--max-tokens", "12", "--temperature", "1"}, args...)...)
	}
	require.Equal(t, sample("--seed", "7"), sample("--seed", "7"))
	require.NotEqual(t, sample("--seed", "7"), sample("--seed", "8"))
}

func TestShowSaysWhatRunsAndWhoDecided(t *testing.T) {
	var s struct {
		Graph, Profile, Loader, Loop, ConfigFingerprint string
		Fingerprint                                     string `json:"config_fingerprint"`
		Composition                                     []struct{ Name, Value, Source string }
		Plan                                            struct {
			Fits       bool
			TotalBytes uint64 `json:"total_bytes"`
		}
		Why []string
	}
	jsonOf(t, &s, "show", checkpoint(t, "llama-f32"), "--context", "128", "--json")
	require.Equal(t, "universal-dense", s.Graph)
	require.Equal(t, "safetensors", s.Loader)
	require.Len(t, s.Fingerprint, 16)
	require.True(t, s.Plan.Fits)
	require.NotZero(t, s.Plan.TotalBytes)
	require.NotEmpty(t, s.Why)
	for _, f := range s.Composition {
		require.NotEmpty(t, f.Source, f.Name)
		if f.Name == "context" {
			require.Equal(t, "128", f.Value)
			require.Equal(t, "user", f.Source)
		}
	}
}

func TestErrorsAreOneLineWithTheExitCodeOfTheirKind(t *testing.T) {
	dense := checkpoint(t, "llama-f32")
	ids := write(t, filepath.Join(t.TempDir(), "ids"), "1 2 3")
	long := write(t, filepath.Join(t.TempDir(), "long"), strings.Repeat("1 ", 600))
	truncated := checkpoint(t, "llama-f32")
	weights := filepath.Join(truncated, "model.safetensors")
	info, err := os.Stat(weights)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(weights, info.Size()-100))
	alien := t.TempDir()
	write(t, filepath.Join(alien, "config.json"), `{"model_type":"alien"}`)
	require.NoError(t, os.Link(filepath.Join(dense, "model.safetensors"), filepath.Join(alien, "model.safetensors")))
	tests := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no such model", []string{"run", "./nowhere", "hi"}, 5, "nowhere"},
		{"truncated weights", []string{"generate", truncated, "--ids", ids}, 5, "model.safetensors"},
		{"unknown family", []string{"show", alien}, 3, "alien"},
		{"prompt over the context", []string{"generate", dense, "--ids", long}, 4, "600 tokens"},
		{"over the budget", []string{"generate", dense, "--ids", ids, "--memory-budget", "1MB"}, 4, "budget"},
		{"no text", []string{"run", dense, "hi"}, 5, "tokenizer.json"},
		{"unknown graph", []string{"generate", dense, "--ids", ids, "--graph", "warp"}, 2, "warp"},
		{"fast kernels are not there", []string{"generate", dense, "--ids", ids, "--kernels", "fast"}, 2, "kernels"},
		{"unknown device", []string{"generate", dense, "--ids", ids, "--device", "tpu"}, 2, "device"},
		{"bad temperature", []string{"generate", dense, "--ids", ids, "--temperature", "-1"}, 2, "temperature"},
		{"later verb", []string{"convert", dense}, 2, "0.2.0"},
		{"embedding with a chat model", []string{"embed", dense, "--ids", ids}, 2, "use a model of qwen3"},
		{"no such profile", []string{"run", dense, "hi", "--profile", "p.yaml"}, 5, "p.yaml"},
		{"own plugin without a graph", []string{"run", dense, "hi", "--plugin", "p"}, 2, "--graph"},
		{"no such plugin", []string{"run", dense, "hi", "--plugin", "p", "--graph", "g"}, 5, "no such plugin"},
		{"malformed fingerprint", []string{"run", dense, "hi", "--artifact-fingerprint", "x"}, 2, "hf:ORG/NAME@revision"},
		{"missing implementation", []string{"run", dense, "hi", "--implementation", "i"}, 3, "implementation i is not registered"},
		{"quantized cache", []string{"generate", dense, "--ids", ids, "--kv", "4"}, 2, "kv"},
		{"a window that is none", []string{"generate", dense, "--ids", ids, "--kv-window", "0+4"}, 2, "TOKENS+KEEP"},
		{"more kept than a tile", []string{"generate", dense, "--ids", ids, "--kv-window", "40+300"}, 2, "kv_window"},
		{"a window and blocks", []string{"generate", dense, "--ids", ids, "--kv-window", "40", "--paging"}, 2, "no layer attends to all positions"},
		{"no kv_config.json", []string{"generate", dense, "--ids", ids, "--kv", "config"}, 2, "kv_config.json"},
		{"transcribing with a chat model", []string{"transcribe", dense, "a.wav"}, 3, "clade run MODEL"},
		{"unknown flag", []string{"run", "--nonsense"}, 2, "nonsense"},
		{"unknown verb", []string{"fly"}, 2, "fly"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := clade(t, tt.args...)
			require.Equal(t, tt.code, r.code, r.errors)
			require.Empty(t, r.out)
			lines := strings.Split(strings.TrimSpace(r.errors), "\n")
			last := lines[len(lines)-1]
			require.True(t, strings.HasPrefix(last, "clade: "), r.errors)
			require.Contains(t, last, tt.want)
			for _, l := range lines[:len(lines)-1] {
				require.True(t, strings.HasPrefix(l, "note: "), l)
			}
		})
	}
}

func TestPluginIsListedDescribedAndVerified(t *testing.T) {
	require.Contains(t, ok(t, "plugin", "list"), "universal")
	require.Contains(t, ok(t, "plugin", "describe", "universal"), `"contract_versions"`)
	require.Contains(t, ok(t, "plugin", "verify"), "ok")
	require.Contains(t, ok(t, "doctor"), "starts and answers")
	require.Contains(t, ok(t, "families"), "universal-dense")
}
