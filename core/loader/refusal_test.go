package loader

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// sample is a model of the corpus on disk.
func sample(t *testing.T, name string) hub.Model {
	t.Helper()
	samples, err := corefamily.Corpus()
	require.NoError(t, err)
	for _, s := range samples {
		if s.Name == name {
			return sampleModel(t, s)
		}
	}
	t.Fatalf("no sample %s", name)
	return hub.Model{}
}

func refused(t *testing.T, err error, kind contract.Kind, exit int, parts ...string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, kind.String(), contract.KindOf(err).String(), err.Error())
	require.Equal(t, exit, contract.KindOf(err).ExitCode())
	require.NotContains(t, err.Error(), "\n")
	for _, p := range parts {
		require.ErrorContains(t, err, p)
	}
}

// hostWith is a host whose families are the first-party ones and what manifests in YAML add.
func hostWith(t *testing.T, f *fakePlugin, manifests ...string) *Host {
	t.Helper()
	h := hostOf(t, f)
	offers, err := corefamily.Embedded()
	require.NoError(t, err)
	for _, text := range manifests {
		m, err := family.ParseManifest([]byte(text))
		require.NoError(t, err)
		offers = append(offers, corefamily.Offer{Manifest: m, Source: corefamily.FromInstalled})
	}
	list, problems := corefamily.New(offers)
	require.Empty(t, problems)
	h.Families = list
	return h
}

// Each refusal of what is decided before a process starts: kind, exit code, text. No plugin is started for any of them.
func TestRefusalsBeforeAPluginStarts(t *testing.T) {
	const implementations = `{schema: 1, name: more, version: 1.0.0, contract: [1], implementations: [
		{id: fast, graph: qwen3, loader: safetensors, loop: autoregressive}, {id: streamed, graph: glm5.2, loader: colibri, loop: autoregressive},
		{id: heard, graph: whisper, loader: safetensors, loop: encoder-decoder}]}`
	none, other, malformed := "", "hf:o/n@1", "nonsense"
	exact := &family.Profile{
		ID: "mine", Artifact: "hf:o/n@1", Config: "0000000000000000", Graph: "universal-dense", Loader: "safetensors", Loop: family.Autoregressive,
		Fidelity: family.L3Measured, Specialization: family.ForArtifact,
	}
	qwen := "hf:mlx-community/Qwen3.8-27B-OptiQ-4bit@b04599de95d7a9bfbd7f208d347c0f10d9432a42"
	for name, c := range map[string]struct {
		model   string
		choices Choices
		kind    contract.Kind
		exit    int
		parts   []string
	}{
		"no family":                   {"gpt2", Choices{}, contract.UnsupportedModel, 3, []string{"gpt2: no family takes this model_type; families: gemma4*, diffusion_gemma", "generic: cohere, cohere2, exaone4"}},
		"remapped to nothing":         {"kimi-k2", Choices{}, contract.UnsupportedModel, 3, []string{"kimi_k2: no family takes this model_type (read as deepseek_v3)"}},
		"near miss":                   {"whisper-small-hf", Choices{}, contract.UnsupportedModel, 3, []string{"whisper wants n_audio_ctx to be of type number, this has none"}},
		"experts":                     {"qwen3_5-with-experts", Choices{}, contract.UnsupportedModel, 3, []string{"qwen3.5 wants num_experts 0, this has 256"}},
		"a draft":                     {"gemma-4-assistant", Choices{}, contract.UnsupportedModel, 3, []string{"is an assistant drafter, not a model"}},
		"an mtp head":                 {"qwen3.5-mtp", Choices{}, contract.UnsupportedModel, 3, []string{"is a multi-token-prediction head, not a model"}},
		"exact config disagrees":      {"qwen3-8b", Choices{ArtifactFingerprint: &qwen}, contract.UnsupportedModelLoad, 3, []string{"qwen3.8-27b-optiq-4bit: declares graph qwen3.5, the model's config is of qwen3"}},
		"exact, another config":       {"qwen3.5-4b", Choices{ArtifactFingerprint: &qwen}, contract.UnsupportedModelLoad, 3, []string{"qwen3.8-27b-optiq-4bit: declares config 50117975cb405944"}},
		"malformed fingerprint":       {"qwen3-8b", Choices{ArtifactFingerprint: &malformed}, contract.InvalidArgument, 2, []string{`artifact fingerprint: "nonsense" is not of the form`}},
		"own profile of another":      {"smollm2-135m", Choices{Profile: exact, ArtifactFingerprint: &none}, contract.UnsupportedModelLoad, 3, []string{"mine: is of the artifact hf:o/n@1; what this one is cannot be told", "--artifact-fingerprint"}},
		"own profile, another config": {"smollm2-135m", Choices{Profile: exact, ArtifactFingerprint: &other}, contract.UnsupportedModelLoad, 3, []string{"mine: declares config 0000000000000000 for hf:o/n@1, the model has"}},
		"own profile, another graph":  {"qwen3-8b", Choices{Profile: exact, ArtifactFingerprint: &other}, contract.UnsupportedModelLoad, 3, []string{"mine: declares graph universal-dense, the model's config is of qwen3"}},
		"missing implementation":      {"qwen3-8b", Choices{Implementation: "lost"}, contract.UnsupportedModelLoad, 3, []string{"qwen3-dedicated: implementation lost is not registered by any plugin; refusing to fall back"}},
		"incompatible implementation": {"smollm2-135m", Choices{Implementation: "fast"}, contract.UnsupportedModelLoad, 3, []string{"universal-dense: implementation fast does not fit: it is of graph qwen3, the model's is universal-dense; refusing"}},
		"streamed implementation":     {"glm-5.2-colibri", Choices{Implementation: "streamed"}, contract.UnsupportedModelLoad, 3, []string{"implementation streamed cannot stand in for a streamed graph; refusing to fall back"}},
		"speech implementation":       {"whisper-tiny", Choices{Implementation: "heard"}, contract.UnsupportedModelLoad, 3, []string{"implementation heard cannot stand in for a speech graph"}},
		"own plugin and a profile":    {"qwen3-8b", Choices{Own: &Own{}, Profile: exact}, contract.UnsupportedOption, 2, []string{"plugin: a plugin of your own needs no profile"}},
		"own and implementation":      {"qwen3-8b", Choices{Own: &Own{}, Implementation: "fast"}, contract.UnsupportedOption, 2, []string{"takes no implementation"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			_, err := hostWith(t, f, implementations).DecideWith(sample(t, c.model), c.choices)
			refused(t, err, c.kind, c.exit, c.parts...)
			starts, _ := f.counts()
			require.Zero(t, starts)
		})
	}
}

func TestAFormatThatTheFamilyDoesNotLoadIsRefusedByName(t *testing.T) {
	samples, err := corefamily.Corpus()
	require.NoError(t, err)
	for _, s := range samples {
		switch s.Name {
		case "qwen3-8b", "smollm2-135m", "gemma-4-12b":
			s.Format = "colibri"
		case "glm-5.2-colibri":
			s.Format, s.Path = "safetensors", ""
		default:
			continue
		}
		_, err := hostOf(t, newFake()).Decide(sampleModel(t, s))
		refused(t, err, contract.UnsupportedModelLoad, 3, s.Graph+" opens ", ", not "+string(s.Format))
	}
}

func TestABrokenKnownTypeIsCorruptAndNamesItsField(t *testing.T) {
	samples, err := corefamily.Corpus()
	require.NoError(t, err)
	for _, s := range samples {
		if s.Name != "qwen3-8b" {
			continue
		}
		var tree map[string]any
		require.NoError(t, json.Unmarshal(s.ConfigJSON, &tree))
		delete(tree, "head_dim")
		s.ConfigJSON, err = json.Marshal(tree)
		require.NoError(t, err)
		_, err = hostOf(t, newFake()).Decide(sampleModel(t, s))
		refused(t, err, contract.ArtifactCorrupt, 5, "config.json: head_dim", "the width of a head must be known")
		tree["head_dim"] = 128
		s.ConfigJSON, err = json.Marshal(tree)
		require.NoError(t, err)
		s.KVConfigJSON = []byte(`[{"layer_idx":0}]`)
		_, err = hostOf(t, newFake()).Decide(sampleModel(t, s))
		refused(t, err, contract.ArtifactCorrupt, 5, "kv_config.json: [0].bits")
	}
}

// Chatting with a speech model and transcribing with one that chats each say what to use instead; so do the cells that cannot be
// created. Nothing is started for it.
func TestEachCellOfTheMatrixSaysWhatToUseInstead(t *testing.T) {
	h := corpusHost(t)
	heard, err := h.Decide(sample(t, "whisper-tiny"))
	require.NoError(t, err)
	defer func() { require.NoError(t, heard.Close()) }()
	dense, err := h.Decide(sample(t, "smollm2-135m"))
	require.NoError(t, err)
	defer func() { require.NoError(t, dense.Close()) }()
	glm, err := h.Decide(sample(t, "glm-5.2-colibri"))
	require.NoError(t, err)
	defer func() { require.NoError(t, glm.Close()) }()
	refused(t, heard.Cell.ForText(heard.Profile.GetId()), contract.UnsupportedModelLoad, 3,
		"whisper-dedicated: a speech model does not generate text; transcribe audio with it: clade transcribe MODEL AUDIO")
	refused(t, dense.Cell.ForSpeech(dense.Profile.GetId()), contract.UnsupportedModelLoad, 3,
		"universal-dense: a text model does not transcribe; chat with it: clade run MODEL")
	refused(t, glm.Cell.ForSpeech(glm.Profile.GetId()), contract.UnsupportedModelLoad, 3, "glm5.2-colibri-int4-int8-mtp: a text model does not transcribe")
	refused(t, glm.Cell.ForCreate(glm.Profile.GetId()), contract.UnsupportedModelLoad, 3,
		"glm5.2-colibri-int4-int8-mtp: streamed weights are opened by their folder, not handed over; open the folder")
	refused(t, heard.Cell.ForCreate(heard.Profile.GetId()), contract.UnsupportedModelLoad, 3, "a speech model does not generate text")
	require.NoError(t, dense.Cell.ForCreate(dense.Profile.GetId()))
}

func TestAnAnnouncedFamilyAndAMissingPluginAreToldApart(t *testing.T) {
	h := corpusHost(t)
	d, err := h.Decide(sample(t, "gemma-4-12b"))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	refused(t, d.PluginErr, contract.UnsupportedModel, 3, "comes with version 0.2.0 of plugin gemma4")
	dense, err := h.Decide(sample(t, "smollm2-135m"))
	require.NoError(t, err)
	defer func() { require.NoError(t, dense.Close()) }()
	refused(t, dense.PluginErr, contract.PluginMissing, 6, "universal")
	_, err = dense.Plan(t.Context(), Wishes{})
	refused(t, err, contract.PluginMissing, 6)
	fit, err := dense.Estimate(0)
	require.NoError(t, err)
	require.EqualValues(t, 8192, fit.Context, "the model's own context")
	require.True(t, fit.Fits)
}

func planWith(t *testing.T, f *fakePlugin, c Choices, w Wishes, manifests ...string) (*Planned, error) {
	t.Helper()
	d, err := hostWith(t, f, manifests...).DecideWith(tinyModel(t), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	p, err := d.Plan(t.Context(), w)
	if err == nil {
		t.Cleanup(p.Stop)
	}
	return p, err
}

const denseImplementation = `{schema: 1, name: more, version: 1.0.0, contract: [1], implementations: [{id: fast, graph: universal-dense, loader: safetensors, loop: autoregressive}]}`

func TestAnImplementationIsItsOwnGraphAndComesFromItsPlugin(t *testing.T) {
	f := newFake()
	f.table = nil
	p, err := planWith(t, f, Choices{Implementation: "fast"}, Wishes{}, denseImplementation)
	require.NoError(t, err)
	require.Equal(t, "more", p.Plugin.Name, "the plugin that registered it is started, not the family's")
	require.Equal(t, "fast", p.Proposed)
	require.Equal(t, "fast", p.spec.GetImplementation())
	require.True(t, p.spec.GetGraphRequired())
	f = newFake()
	_, err = planWith(t, f, Choices{Implementation: "fast"}, Wishes{Graph: "llama"}, denseImplementation)
	refused(t, err, contract.UnsupportedOption, 2, "graph: cannot be named together with implementation fast")
	starts, _ := f.counts()
	require.Zero(t, starts)
}

func TestRefusalsOfTheGraphTable(t *testing.T) {
	_, err := planWith(t, newFake(), Choices{}, Wishes{Graph: "warp"})
	refused(t, err, contract.InvalidArgument, 2, `graph: "warp" is not in the table of universal-dense: llama`)
	f := newFake()
	f.table = &cladev1.GraphTable{Graph: "other", Entries: []*cladev1.GraphEntry{{Id: "x"}}}
	_, err = planWith(t, f, Choices{}, Wishes{})
	refused(t, err, contract.PluginMismatch, 1, "has no graph table for universal-dense")
	f = newFake()
	f.plan = func(*cladev1.PlanRequest) (*cladev1.Plan, error) {
		return &cladev1.Plan{GraphEntry: "other", GraphReason: "its kernel is missing", Device: "cpu-test"}, nil
	}
	_, err = planWith(t, f, Choices{}, Wishes{RequireGraph: true})
	refused(t, err, contract.UnsupportedModelLoad, 3, "llama: the plugin would run graph other instead: its kernel is missing")
	f.plan = func(*cladev1.PlanRequest) (*cladev1.Plan, error) {
		return &cladev1.Plan{GraphEntry: "llama", Device: "cpu-test", Kernels: []*cladev1.KernelChoice{{Name: "matmul", Reason: "the CPU lacks AVX2"}}}, nil
	}
	f.options = append(f.options, "kernels")
	w := Wishes{}
	w.Kernels = "require"
	_, err = planWith(t, f, Choices{}, w)
	refused(t, err, contract.UnsupportedOption, 2, "kernels: kernel matmul would fall back: the CPU lacks AVX2")
	starts, stops := f.counts()
	require.Equal(t, starts, stops, "what is refused leaves no process")
}

func TestAKernelThatFailedItsSelfTestNeverRuns(t *testing.T) {
	f := newFake()
	f.plan = func(*cladev1.PlanRequest) (*cladev1.Plan, error) {
		return &cladev1.Plan{GraphEntry: "llama", Device: "cpu-test", Kernels: []*cladev1.KernelChoice{{Name: "matmul", Native: true}, {Name: "rope", Reason: "missing"}}}, nil
	}
	f.kernels = []*cladev1.Kernel{{Name: "matmul", SelfTest: cladev1.SelfTest_SELF_TEST_PASSED}, {Name: "rope", SelfTest: cladev1.SelfTest_SELF_TEST_MISSING}}
	_, err := planWith(t, f, Choices{}, Wishes{})
	require.NoError(t, err, "a fallback is no failure")
	f.kernels[0].SelfTest, f.kernels[0].Reason = cladev1.SelfTest_SELF_TEST_FAILED, "off by 2"
	_, err = planWith(t, f, Choices{}, Wishes{})
	refused(t, err, contract.PluginMismatch, 1, "universal: would run kernel matmul, which cannot: off by 2")
}

// Propose and dispose with reasons; auxiliary programs are listed and never an error.
func TestTheProposalSaysWhyAndProgramsAreListed(t *testing.T) {
	f := newFake()
	f.table = &cladev1.GraphTable{Graph: "universal-dense", Entries: []*cladev1.GraphEntry{
		{Id: "exact", Serves: &cladev1.GraphKey{Fingerprint: new("cfa205c8f5af046a")}},
		{Id: "gpu", Serves: &cladev1.GraphKey{Device: new("metal-applegpu_g16s")}},
		{Id: "rows", Serves: &cladev1.GraphKey{MaxRows: new(uint32(2)), Kv: []string{"affine:4g64"}}},
		{Id: "generic", Programs: []string{"ane-mlp"}},
	}}
	w := Wishes{}
	w.Rows = 1
	p, err := planWith(t, f, Choices{}, w)
	require.NoError(t, err)
	require.Equal(t, "generic", p.Proposed)
	require.Equal(t, "exact wants fingerprint cfa205c8f5af046a, this has "+p.GraphFingerprint+"; gpu wants device metal-applegpu_g16s, this is cpu-test; "+
		"rows wants KV affine:4g64, this has native", p.ProposedWhy)
	require.Equal(t, []Program{{ID: "ane-mlp", Reason: "no auxiliary processor beside device cpu-test"}}, p.Programs())
	f.options = append(f.options, "kv.affine")
	w.KV = "4"
	p, err = planWith(t, f, Choices{}, w)
	require.NoError(t, err)
	require.Equal(t, "rows", p.Proposed, "a scheme is compared, not its spelling")
	w.Rows = 3
	p, err = planWith(t, f, Choices{}, w)
	require.NoError(t, err)
	require.Equal(t, "generic", p.Proposed)
	require.Contains(t, p.ProposedWhy, "rows wants at most 2 rows, a phase of this has 3")
}

func TestARowLimitCountsTheRowsOfVerification(t *testing.T) {
	key := &cladev1.GraphKey{MaxRows: new(uint32(6))}
	comp := &cladev1.Composition{Rows: new(uint32(2)), Draft: &cladev1.Draft{Depth: new(uint32(2))}}
	require.Empty(t, misfit(key, "", comp))
	comp.Draft.Depth = new(uint32(3))
	require.Equal(t, "at most 6 rows, a phase of this has 8", misfit(key, "", comp))
}
