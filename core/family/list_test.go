package family

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	record "github.com/clademl/clade/sdk/family"
)

func firstParty(t *testing.T, more ...Offer) (*List, []Problem) {
	t.Helper()
	offers, err := Embedded()
	require.NoError(t, err)
	require.Len(t, offers, 5)
	return New(append(offers, more...))
}

func graphs(l *List) []string {
	var out []string
	for _, e := range l.Families() {
		out = append(out, e.Record.Graph)
	}
	return out
}

func config(t *testing.T, text string) artifact.Config {
	t.Helper()
	c, err := artifact.ParseConfig("config.json", []byte(text))
	require.NoError(t, err)
	return c
}

// thirdParty is a manifest with one targeted family for a type.
func thirdParty(t *testing.T, plugin, graph, modelType string, order string) *record.Manifest {
	t.Helper()
	m, err := record.ParseManifest([]byte(`{schema: 1, name: ` + plugin + `, version: 1.0.0, contract: [1], families: [{graph: ` + graph +
		`, label: ` + graph + `, tier: targeted, ` + order + ` status: available, model_types: [` + modelType +
		`], accepts: [{path: model_type, op: eq, value: ` + modelType + `}], accepts_type: [{path: model_type, op: eq, value: ` + modelType +
		`}], config: {}, loaders: [safetensors], loop: autoregressive, fidelity: l3-measured, specialization: dedicated, profile: p, ` +
		`capabilities: [c-graph], fingerprint: config}]}`))
	require.NoError(t, err)
	return m
}

func TestEmbeddedManifestsAreCopiesOfThePlugins(t *testing.T) {
	sources, err := filepath.Glob("../../plugins/*/plugin.yaml")
	require.NoError(t, err)
	copies, err := filepath.Glob("embedded/*.yaml")
	require.NoError(t, err)
	require.Len(t, copies, len(sources), "run go generate in core/family")
	for _, path := range sources {
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join("embedded", filepath.Base(filepath.Dir(path))+".yaml"))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "run go generate in core/family")
	}
}

func TestOrderIsThatOfTheDesign(t *testing.T) {
	l, problems := firstParty(t,
		Offer{thirdParty(t, "zeta", "example.org/z", "ztype", "order: 1,"), FromInstalled},
		Offer{thirdParty(t, "alpha", "example.org/a", "atype", "order: 9,"), FromIndex},
	)
	require.Empty(t, problems)
	require.Equal(t, []string{
		"gemma4", "diffusion-gemma", "glm5.2", "qwen3.5", "qwen3.5-moe", "qwen3", "qwen3-moe", "whisper", "minicpm5",
		"example.org/a", "example.org/z", "universal-dense",
	}, graphs(l))
}

func TestStrongerSourceReplacesAPlugin(t *testing.T) {
	newer := thirdParty(t, "whisper", "whisper", "whisper", "")
	for _, order := range [][]Offer{
		{{newer, FromInstalled}, {thirdParty(t, "whisper", "whisper", "other", ""), FromIndex}},
		{{thirdParty(t, "whisper", "whisper", "other", ""), FromIndex}, {newer, FromInstalled}},
	} {
		l, problems := firstParty(t, order...)
		require.Empty(t, problems)
		e, ok := l.ByGraph("whisper")
		require.True(t, ok)
		require.Equal(t, FromInstalled, e.Source)
		require.Equal(t, "1.0.0", e.Version)
		require.Len(t, l.Families(), 10)
	}
}

// Installed, then the signed index, then what the host carries: each alone names a plugin's families, the strongest wins.
func TestASourceIsAskedBeforeTheWeakerOnes(t *testing.T) {
	of := func(version string, source Source) Offer {
		m := thirdParty(t, "whisper", "whisper", "whisper", "")
		m.Version = version
		return Offer{m, source}
	}
	for want, offers := range map[string][]Offer{
		"3.0.0 installed": {of("2.0.0", FromIndex), of("3.0.0", FromInstalled), of("1.0.0", FromEmbedded)},
		"2.0.0 index":     {of("1.0.0", FromEmbedded), of("2.0.0", FromIndex)},
		"1.0.0 embedded":  {of("1.0.0", FromEmbedded)},
	} {
		l, problems := New(offers)
		require.Empty(t, problems)
		e, ok := l.ByGraph("whisper")
		require.True(t, ok, want)
		require.Equal(t, want, e.Version+" "+e.Source.String())
		require.Len(t, l.Families(), 1)
	}
}

func TestConflictsDisableTheThirdPartyRecordAndAreReported(t *testing.T) {
	l, problems := firstParty(t,
		Offer{thirdParty(t, "aaa", "qwen3", "qwen3", ""), FromInstalled},
		Offer{thirdParty(t, "bbb", "example.org/x", "x", ""), FromInstalled},
		Offer{thirdParty(t, "ccc", "example.org/x", "y", ""), FromInstalled},
		Offer{thirdParty(t, "ddd", "mine", "y", ""), FromInstalled},
	)
	require.Equal(t, []Problem{
		{Plugin: "aaa", Graph: "qwen3", Reason: "plugin qwen has this graph id"},
		{Plugin: "ccc", Graph: "example.org/x", Reason: "plugin bbb has this graph id"},
		{Plugin: "ddd", Graph: "mine", Reason: "a third-party graph id must hold a domain, as in example.org/mine"},
	}, problems)
	e, _ := l.ByGraph("qwen3")
	require.Equal(t, "qwen", e.Plugin)
	require.Contains(t, problems[0].String(), "family qwen3 of plugin aaa is disabled")
}

func TestCapabilitiesAreTheEnginesAndTheFamilies(t *testing.T) {
	l, _ := firstParty(t)
	require.Equal(t, []string{
		"autoregressive", "colibri-container", "diffusion", "diffusion-gemma-graph", "encoder-decoder", "gemma4-graph", "gguf",
		"glm5.2-graph", "minicpm5-graph", "mixed-precision-kv", "native-mtp", "qwen3-graph", "qwen3-moe-graph", "qwen3.5-graph", "qwen3.5-moe-graph",
		"recurrent-state", "safetensors", "streamed-experts", "universal-dense-graph", "vision-sidecar", "whisper-graph",
	}, l.Capabilities())
	for _, e := range l.Families() {
		for _, loader := range e.Record.Loaders {
			p, err := e.Record.ProfileFor(artifact.Format(loader))
			require.NoError(t, err)
			require.Subset(t, l.Capabilities(), p.Capabilities, "no family needs what the engine lacks")
		}
	}
}

const llama = `{"model_type":"llama","hidden_size":1536,"num_hidden_layers":24,"num_attention_heads":16,"num_key_value_heads":2,
	"head_dim":128,"vocab_size":130560,"tie_word_embeddings":false,"intermediate_size":4608,"rms_norm_eps":1e-6}`

func TestFirstMatchWins(t *testing.T) {
	l, _ := firstParty(t)
	for name, c := range map[string]struct{ cfg, graph string }{
		"exact dimensions":    {llama, "minicpm5"},
		"one off":             {strings.Replace(llama, "1536", "1537", 1), "universal-dense"},
		"mistral is a llama":  {strings.Replace(llama, `"llama"`, `"mistral"`, 1), "universal-dense"},
		"iquestcoder too":     {strings.Replace(llama, `"llama"`, `"iquestcoder"`, 1), "universal-dense"},
		"gemma4":              {`{"model_type":"gemma4"}`, "gemma4"},
		"gemma4 unified":      {`{"model_type":"gemma4_unified"}`, "gemma4"},
		"diffusion":           {`{"model_type":"diffusion_gemma"}`, "diffusion-gemma"},
		"glm":                 {`{"model_type":"glm_moe_dsa"}`, "glm5.2"},
		"qwen3.5":             {`{"model_type":"qwen3_5"}`, "qwen3.5"},
		"qwen3.5 text":        {`{"model_type":"qwen3_5_text"}`, "qwen3.5"},
		"qwen3":               {`{"model_type":"qwen3"}`, "qwen3"},
		"qwen3 moe":           {`{"model_type":"qwen3_moe"}`, "qwen3-moe"},
		"qwen3 moe from gguf": {`{"model_type":"qwen3moe"}`, "qwen3-moe"},
		"qwen3.5 from gguf":   {`{"model_type":"qwen35"}`, "qwen3.5"},
		"3.5 moe from gguf":   {`{"model_type":"qwen35moe","num_experts":8}`, "qwen3.5-moe"},
		"whisper":             {`{"model_type":"whisper","n_audio_ctx":1500}`, "whisper"},
	} {
		e, err := l.Match(config(t, c.cfg))
		require.NoError(t, err, name)
		require.Equal(t, c.graph, e.Record.Graph, name)
	}
}

// A bare "llama" says generic: the exact tier needs the dimensions.
func TestAListingByTypeCannotKnowTheExactFamily(t *testing.T) {
	l, _ := firstParty(t)
	for modelType, graph := range map[string]string{
		"llama": "universal-dense", "mistral": "universal-dense", "gemma4_text": "gemma4", "qwen3_5": "qwen3.5", "whisper": "whisper",
	} {
		e, ok := l.ByType(modelType)
		require.True(t, ok, modelType)
		require.Equal(t, graph, e.Record.Graph)
	}
	for _, modelType := range []string{"", "mamba", "gemma4_assistant", "qwen3_5_mtp"} {
		_, ok := l.ByType(modelType)
		require.False(t, ok, modelType)
	}
}

// gemma4_assistant begins like gemma4: drafts are sorted out before any family is asked.
func TestDraftsAreNeverServed(t *testing.T) {
	l, _ := firstParty(t)
	for modelType, mention := range map[string]string{
		"gemma4_assistant": "assistant drafter", "gemma4_unified_assistant": "assistant drafter",
		"qwen3_5_mtp": "multi-token-prediction head", "gemma4_mtp": "multi-token-prediction head",
	} {
		_, err := l.Match(config(t, `{"model_type":"`+modelType+`"}`))
		require.Equal(t, contract.UnsupportedModel, contract.KindOf(err))
		require.ErrorContains(t, err, mention)
		require.ErrorContains(t, err, modelType)
	}
}

func TestUnsupportedTextNamesTypeRemapAndWhatIsSupported(t *testing.T) {
	l, _ := firstParty(t)
	const supported = "; families: gemma4*, diffusion_gemma, glm_moe_dsa, qwen3_5, qwen3_5_moe, qwen3, qwen3_moe, whisper, MiniCPM5; generic: cohere, cohere2, exaone4, gemma, gemma2, gemma3, gemma3_text, glm4, granite, internlm2, internlm3, llama, minicpm, minicpm3, ministral3, olmo2, olmo3, phi3, qwen2, qwen3, smollm3, stablelm, starcoder2"
	for text, want := range map[string]string{
		`{"model_type":"mamba"}`:        "mamba: no family takes this model_type" + supported,
		`{"model_type":"qwen3next"}`:    "qwen3next: no family takes this model_type" + supported, // of a GGUF
		`{"model_type":"falcon_mamba"}`: "falcon_mamba: no family takes this model_type (read as mamba)" + supported,
		`{"model_type":"whisper"}`: "whisper: no family takes this model_type; whisper wants n_audio_ctx to be of type number, " +
			"this has none" + supported,
		`{"model_type":"qwen3_5","text_config":{"num_experts":256}}`: "qwen3_5: no family takes this model_type; qwen3.5 wants num_experts 0, " +
			"this has 256" + supported,
	} {
		_, err := l.Match(config(t, text))
		require.Equal(t, contract.UnsupportedModel, contract.KindOf(err))
		require.Equal(t, want, err.Error())
	}
}

func TestBrokenModelIsCorruptNotUnsupported(t *testing.T) {
	l, _ := firstParty(t)
	for text, mention := range map[string]string{
		`{}`:               "config.json: model_type: is missing",
		`{"model_type":5}`: "config.json: model_type: is 5",
	} {
		_, err := l.Match(config(t, text))
		require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err), text)
		require.ErrorContains(t, err, mention)
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(strings.Replace(llama, `"rms_norm_eps":1e-6`, `"rms_norm_eps":null`, 1)), 0o600))
	require.NoError(t, artifact.WriteSafetensors(filepath.Join(dir, "model.safetensors"), nil, nil))
	a, err := artifact.Open(dir)
	require.NoError(t, err)
	defer func() { _ = a.Close() }()
	_, err = l.Open(a)
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
	require.ErrorContains(t, err, "config.json: rms_norm_eps")
}

func TestOpenGivesProfileAndParsedConfig(t *testing.T) {
	l, _ := firstParty(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(llama), 0o600))
	require.NoError(t, artifact.WriteSafetensors(filepath.Join(dir, "model.safetensors"), nil, nil))
	a, err := artifact.Open(dir)
	require.NoError(t, err)
	defer func() { _ = a.Close() }()
	f, err := l.Open(a)
	require.NoError(t, err)
	require.Equal(t, "minicpm5-dedicated", f.Profile.ID)
	require.Equal(t, "universal", f.Plugin)
	require.NoError(t, f.Runnable())
	theta, _, err := f.Parsed.Float("rope_theta")
	require.NoError(t, err)
	require.Equal(t, 10000.0, theta)
}

func TestAnnouncedFamilySaysWhichVersionBringsIt(t *testing.T) {
	l, _ := firstParty(t)
	for _, e := range l.Families() {
		err := e.Runnable()
		if e.Record.Status == record.Available {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, contract.UnsupportedModel, contract.KindOf(err))
		require.ErrorContains(t, err, "version 0.2.0 of plugin "+e.Plugin)
	}
}
