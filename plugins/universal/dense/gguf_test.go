package dense

import (
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights"
)

// ggufBound is how far llama.cpp's logits are: its gelu is the tanh one whatever the architecture, and looks it up in float16.
func ggufBound(name string) float64 {
	if strings.HasPrefix(name, "gguf-gemma") || name == "gguf-starcoder2" {
		return 5e-3
	}
	return oracleBound
}

// A MiniCPM's file that states no scales is read by this llama.cpp as if its logits were to be divided by 256/96, not by 96/256.
const oldMiniCPM, upsideDown = "gguf-minicpm-old", 96.0 * 96 / (256 * 256)

// A GGUF in llama.cpp's names, order of rows and metadata gives the logits that the same model has as Hugging Face stores it, and those of
// llama.cpp (testdata/llamacpp.py).
func TestGGUFsOfRowsEqualTheirHuggingFaceTwinsAndLlamaCpp(t *testing.T) {
	k, err := openRuntime(t).Kernels()
	require.NoError(t, err)
	target := weights.Target{DType: mlx.Float32, Kernels: k}
	golden := map[string]golden{}
	for _, g := range readGoldens(t, "llamacpp.json") {
		golden[g.Name] = g
	}
	require.Len(t, golden, len(tiny.DenseGGUFNames()), "run testdata/llamacpp.py again")
	dir := t.TempDir()
	for _, name := range tiny.DenseGGUFNames() {
		t.Run(name, func(t *testing.T) {
			paths, err := tiny.WriteAll(dir, tiny.DenseGGUF(name))
			require.NoError(t, err)
			e, twin := openOn(t, paths[name+".gguf"], target, 512), openOn(t, paths[name], target, 512)
			for length := range golden[name].LastRows {
				n, err := strconv.Atoi(length)
				require.NoError(t, err)
				ids := tiny.Prompt(n, golden[name].Vocab)
				got, want := logits(t, e, ids), logits(t, twin, ids)
				apart := 0.0
				for i := range got {
					apart = max(apart, distance(want[i], got[i]))
				}
				if name == oldMiniCPM {
					for i := range got[n-1] {
						got[n-1][i] *= upsideDown
					}
				}
				d := distance(golden[name].lastRow(t, length), got[n-1])
				t.Logf("%3d ids: %.1e from the twin, %.1e from llama.cpp", n, apart, d)
				require.LessOrEqual(t, apart, oracleBound, "of %d", n)
				require.LessOrEqual(t, d, ggufBound(name), "of %d", n)
			}
		})
	}
}

// changedGGUF reads a GGUF pair's config after a change of what the file says.
func changedGGUF(t *testing.T, path string, change func(tree map[string]any)) (Config, error) {
	t.Helper()
	a, err := artifact.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	tree := maps.Clone(a.Config().Map())
	change(tree)
	said := artifact.NewConfig(a.Config().Name(), tree)
	data, err := os.ReadFile("../plugin.yaml")
	require.NoError(t, err)
	manifest, err := family.ParseManifest(data)
	require.NoError(t, err)
	for _, record := range manifest.Families {
		if record.Graph != "universal-dense" {
			continue
		}
		parsed, err := record.ParseConfig(said, a.GenerationConfig())
		require.NoError(t, err)
		c, err := ReadConfig(parsed.Config, &said)
		if err == nil {
			_, err = Match(a, &c)
		}
		return c, err
	}
	return Config{}, nil
}

// What a GGUF asks for beyond what its row computes is refused by name: llama.cpp's keys say more than a row reads.
func TestAGGUFThatAsksForWhatItsRowLacksIsRefused(t *testing.T) {
	paths, err := tiny.WriteAll(t.TempDir(), tiny.DenseGGUF("gguf-llama", "gguf-gemma3", "gguf-cohere2", "gguf-phi3", "gguf-minicpm3", "gguf-qwen2"))
	require.NoError(t, err)
	rope := func(more ...any) map[string]any {
		out := map[string]any{"rope_type": "default"}
		for i := 0; i < len(more); i += 2 {
			out[more[i].(string)] = more[i+1]
		}
		return out
	}
	for _, tt := range []struct {
		file, key string
		value     any
		kind      contract.Kind
		subject   string
	}{
		{"gguf-llama", "attn_logit_softcapping", 50.0, contract.UnsupportedModel, "attn_logit_softcapping"},
		{"gguf-gemma3", "final_logit_softcapping", 30.0, contract.UnsupportedModel, "final_logit_softcapping"},
		{"gguf-llama", "embedding_multiplier", 12.0, contract.UnsupportedModel, "embedding_multiplier"},
		{"gguf-llama", "residual_multiplier", 0.2, contract.UnsupportedModel, "residual_multiplier"},
		{"gguf-llama", "logits_scaling", 8.0, contract.UnsupportedModel, "logits_scaling"},
		{"gguf-llama", "attention_multiplier", 0.01, contract.UnsupportedModel, "attention_multiplier"},
		{"gguf-llama", "llama_4_scaling_beta", 0.1, contract.UnsupportedModel, "llama_4_scaling_beta"},
		{"gguf-qwen2", "mrope_section", []any{int64(4), int64(4)}, contract.UnsupportedModel, "mrope_section"},
		{"gguf-llama", "is_causal", false, contract.UnsupportedModel, "is_causal"},
		{"gguf-llama", "rope_local_base_freq", 5e5, contract.UnsupportedModel, "rope_local_base_freq"},
		{"gguf-llama", "value_head_dim", int64(16), contract.UnsupportedModel, "value_head_dim"},
		{"gguf-cohere2", "sliding_window", nil, contract.ArtifactCorrupt, "sliding_window"},
		{"gguf-llama", "rope_scaling", rope("rope_type", "linear", "factor", 4.0), contract.UnsupportedModel, "rope_scaling"}, // beside divisors
		{"gguf-qwen2", "rope_scaling", rope("rope_type", "longrope"), contract.ArtifactCorrupt, "rope_scaling"},
		{"gguf-qwen2", "rope_scaling", rope("attention_factor", 1.2), contract.UnsupportedModel, "attention_factor"},
		{"gguf-qwen2", "rope_scaling", rope("extrapolation_factor", 0.5), contract.UnsupportedModel, "extrapolation_factor"},
		{"gguf-minicpm3", "rotary_dim", int64(32), contract.ArtifactCorrupt, "rotary_dim"},
		{"gguf-minicpm3", "q_lora_rank", nil, contract.ArtifactCorrupt, "q_lora_rank"},
	} {
		t.Run(tt.file+" "+tt.key, func(t *testing.T) {
			_, err := changedGGUF(t, paths[tt.file+".gguf"], func(tree map[string]any) { tree[tt.key] = tt.value })
			require.ErrorContains(t, err, tt.subject)
			require.Equal(t, tt.kind, contract.KindOf(err), "%v", err)
		})
	}
	for file := range paths {
		if strings.HasSuffix(file, ".gguf") {
			_, err := changedGGUF(t, paths[file], func(map[string]any) {})
			require.NoError(t, err, file)
		}
	}
}

// A Gemma 3 whose file names no window has none; only config.json's type has one by default.
func TestAGGUFWithoutAWindowHasNone(t *testing.T) {
	paths, err := tiny.WriteAll(t.TempDir(), tiny.DenseGGUF("gguf-gemma3"))
	require.NoError(t, err)
	c, err := changedGGUF(t, paths["gguf-gemma3.gguf"], func(map[string]any) {})
	require.NoError(t, err)
	require.Equal(t, []int{24, 24, 0, 24}, c.Windows)
	c, err = changedGGUF(t, paths["gguf-gemma3.gguf"], func(tree map[string]any) { delete(tree, "sliding_window") })
	require.NoError(t, err)
	require.Equal(t, []int{0, 0, 0, 0}, c.Windows)
}
