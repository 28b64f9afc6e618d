package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
)

// outsider builds the third-party plugin into a folder of its own, sealed like an installed one.
func outsider(t *testing.T) (plugins, exe string) {
	t.Helper()
	plugins = t.TempDir()
	folder := filepath.Join(plugins, "abacus")
	exe = filepath.Join(folder, "clade-abacus")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	source := filepath.Join(repository(), "sdk", "plugintest", "thirdparty")
	build := exec.Command("go", "build", "-trimpath", "-o", exe, ".")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	manifest, err := os.ReadFile(filepath.Join(source, "plugin.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "plugin.yaml"), manifest, 0o600))
	ok(t, "plugin", "seal", folder)
	return plugins, exe
}

// unknown is a model whose type no family knows.
func unknown(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
	require.NoError(t, artifact.WriteSafetensors(filepath.Join(dir, "model.safetensors"), nil, nil))
	return dir
}

// note is a file of its own with a text.
func note(t *testing.T, text string) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "note.yaml"), text)
}

type generated struct {
	TokenIDs []int32 `json:"token_ids"`
}

func TestAnUnknownTypeRunsWithTheCallersOwnPluginAndGraph(t *testing.T) {
	_, exe := outsider(t)
	model := unknown(t, `{"model_type":"nobody-knows-this","rods":1,"width":8,"beads":5}`)
	require.Equal(t, 3, clade(t, "show", model).code)
	for _, path := range []string{exe, filepath.Dir(exe)} {
		var got generated
		jsonOf(t, &got, "generate", model, "--plugin", path, "--graph", "plain", "--ids", note(t, "[41]"), "--json")
		require.Equal(t, []int32{42, 43, 44}, got.TokenIDs)
	}
	r := clade(t, "generate", model, "--plugin", exe, "--graph", "warp", "--ids", note(t, "[41]"))
	require.Equal(t, 2, r.code)
	require.Contains(t, r.errors, `graph: "warp" is not in the tables of plugin abacus: fast, plain`)
	r = clade(t, "generate", model, "--plugin", exe, "--graph", "plain", "--implementation", "abacus-dense", "--ids", note(t, "[41]"))
	require.Equal(t, 2, r.code)
	require.Contains(t, r.errors, "takes no implementation")
}

func TestAnInstalledThirdPartyIsUsedLikeTheHousesOwn(t *testing.T) {
	plugins, _ := outsider(t)
	model := unknown(t, `{"model_type":"abacus","frame":{"rods":3,"width":64,"beads":10}}`)
	var got generated
	jsonOf(t, &got, "generate", model, "--ids", note(t, "[41]"), "--json", "--config", note(t, "plugins: {dirs: ["+plugins+"]}"))
	require.Equal(t, []int32{42, 43, 44}, got.TokenIDs)

	var s struct {
		Profile, Implementation string
		Why                     []string
		Programs                []struct {
			ID        string
			Available bool
			Reason    string
		}
	}
	settings := note(t, "plugins: {dirs: ["+plugins+"]}")
	jsonOf(t, &s, "show", checkpoint(t, "llama-f32"), "--implementation", "abacus-dense", "--json", "--config", settings)
	require.Equal(t, "universal-dense", s.Profile)
	require.Equal(t, "abacus-dense", s.Implementation)
	jsonOf(t, &s, "show", model, "--kv", "f32", "--json", "--config", settings)
	require.Equal(t, "abacus-dedicated", s.Profile)
	require.Len(t, s.Programs, 1)
	require.False(t, s.Programs[0].Available, "listed, and no error")

	profile := note(t, "{id: mine, graph: example.org/abacus, loader: safetensors, loop: autoregressive, fidelity: l3-measured, specialization: dedicated}")
	jsonOf(t, &s, "show", model, "--profile", profile, "--json", "--config", settings)
	require.Equal(t, "mine", s.Profile)
	require.Contains(t, s.Why, "profile mine was given by the caller")
	r := clade(t, "generate", checkpoint(t, "llama-f32"), "--implementation", "abacus-dense", "--graph", "llama", "--ids", note(t, "[41]"), "--config", settings)
	require.Equal(t, 2, r.code, r.errors)
	require.Contains(t, r.errors, "graph: cannot be named together with implementation abacus-dense")
}

// A draft is planned and shown from its headers, and opened; what cannot be is refused, and nothing runs without.
func TestADraftIsShownAndNeverLeftOut(t *testing.T) {
	model, draft := checkpoint(t, "llama-f32"), checkpoint(t, "llama-affine4")
	var s struct {
		Plan struct {
			Lines []struct {
				Name  string
				Bytes uint64
			}
		}
		Auxiliaries []struct {
			Role, Kind, Path, Graph string
			WeightBytes             uint64 `json:"weight_bytes"`
			Opened                  bool
		}
		Composition []struct{ Name, Value, Source string }
	}
	jsonOf(t, &s, "show", model, "--draft", draft, "--draft-depth", "2", "--context", "512", "--json")
	require.Len(t, s.Auxiliaries, 1)
	require.Equal(t, "draft", s.Auxiliaries[0].Role)
	require.Equal(t, "two-model", s.Auxiliaries[0].Kind)
	require.Equal(t, draft, s.Auxiliaries[0].Path)
	require.Equal(t, "universal-dense", s.Auxiliaries[0].Graph)
	require.Positive(t, s.Auxiliaries[0].WeightBytes)
	lines := map[string]uint64{}
	for _, l := range s.Plan.Lines {
		lines[l.Name] = l.Bytes
	}
	require.Greater(t, lines["auxiliaries"], s.Auxiliaries[0].WeightBytes)
	for _, f := range s.Composition {
		if f.Name == "draft" {
			require.Equal(t, "two-model "+draft+", at most 2 tokens", f.Value)
			require.Equal(t, "user", f.Source)
		}
	}
	for text, args := range map[string][]string{
		`draft: the kind "checkpoint-mtp"`: {"--draft", "mtp"},
		"adapter_config.json: lora_p":      {"--adapter", adapterFolder(t)},
		`clade: program: "ane-x" `:         {"--program", "ane-x"},
		"depth of 3 is of no use":          {"--draft-depth", "3"},
		"clade: nothing-of-this: no":       {"--draft", "nothing-of-this"},
	} {
		r := clade(t, append([]string{"generate", model, "--ids", note(t, "[41]")}, args...)...)
		require.NotZero(t, r.code, args)
		require.Contains(t, r.errors, text)
		require.Empty(t, r.out)
	}
}

// What drafts changes no token, and the answer says how it did.
func TestADraftChangesNoToken(t *testing.T) {
	model := checkpoint(t, "llama-f32")
	type answer struct {
		IDs   []int32 `json:"token_ids"`
		Usage struct {
			Speculation *struct {
				Drafted, Accepted uint32
				Parked            string
			}
		}
		Provenance struct {
			DraftKind string `json:"draft_kind"`
		}
	}
	generate := func(more ...string) (out answer) {
		args := []string{"generate", model, "--ids", note(t, "[41, 42, 43]"), "--max-tokens", "300", "--temperature", "0.8", "--seed", "7", "--ignore-eos", "--context", "512", "--json"}
		jsonOf(t, &out, append(args, more...)...)
		return out
	}
	plain := generate()
	require.Len(t, plain.IDs, 300)
	require.Nil(t, plain.Usage.Speculation)
	own := generate("--draft", model)
	require.Equal(t, plain.IDs, own.IDs)
	require.NotNil(t, own.Usage.Speculation)
	require.Zero(t, own.Usage.Speculation.Drafted, "it costs as much as the model")
	require.Contains(t, own.Usage.Speculation.Parked, "it would lose if it were always right")
	small := generate("--draft", checkpoint(t, "llama-affine4"))
	require.Equal(t, plain.IDs, small.IDs)
	require.NotNil(t, small.Usage.Speculation)
	require.Positive(t, small.Usage.Speculation.Drafted)
	require.Equal(t, "two-model", small.Provenance.DraftKind)
	require.Equal(t, plain.IDs, generate("--draft", "ngram", "--draft-depth", "8").IDs)
}

// adapterFolder is an adapter as a trainer writes one.
func adapterFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "adapter_config.json"), "{}")
	require.NoError(t, artifact.WriteSafetensors(filepath.Join(dir, "adapters.safetensors"), nil, nil))
	return dir
}
