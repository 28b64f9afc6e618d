package loader

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/artifact/lora"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// put writes a safetensors file with one tensor of so many bytes.
func put(t *testing.T, path string, bytes int64) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	tensor := artifact.NewTensor{Name: "w", DType: "U8", Shape: []int64{bytes}, Data: make([]byte, bytes)}
	require.NoError(t, artifact.WriteSafetensors(path, []artifact.NewTensor{tensor}, nil))
}

// draftFolder is a model's folder with a config and one tensor.
func draftFolder(t *testing.T, config string, bytes int64) string {
	t.Helper()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "model.safetensors"), bytes)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
	return dir
}

// speculator is a fake that honours drafts and adapters and plans what it is given.
func speculator(more ...string) *fakePlugin {
	f := newFake()
	f.options = append(f.options, append([]string{"draft.dir", "draft.graph", "draft.depth", "adapters"}, more...)...)
	plan := f.plan
	f.plan = func(req *cladev1.PlanRequest) (*cladev1.Plan, error) {
		p, err := plan(req)
		for range req.Model.Artifacts[1:] {
			p.Lines = append(p.Lines, &cladev1.MemoryLine{Name: "auxiliaries", Bytes: 500})
			p.TotalBytes += 500
		}
		return p, err
	}
	return f
}

func TestADraftIsToldByItsHeadersAndGoesIntoThePlanByRole(t *testing.T) {
	other := tinyModel(t).Path
	for name, c := range map[string]struct {
		from string
		role cladev1.Role
		kind string
	}{
		"a model":      {other, cladev1.Role_ROLE_DRAFT, "two-model"},
		"an assistant": {draftFolder(t, `{"model_type":"gemma4_assistant"}`, 64), cladev1.Role_ROLE_ASSISTANT, "assistant"},
		"a head":       {draftFolder(t, `{"model_type":"qwen3_5_mtp"}`, 64), cladev1.Role_ROLE_MTP, "mtp"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := planWith(t, speculator(), Choices{Draft: Draft{From: c.from, Depth: 3}}, Wishes{})
			require.NoError(t, err)
			d := p.spec.Composition.GetDraft()
			require.Equal(t, c.kind, d.GetKind())
			require.Equal(t, c.from, d.GetDir())
			require.EqualValues(t, 3, d.GetDepth())
			require.Len(t, p.spec.Artifacts, 2)
			require.Equal(t, c.role, p.spec.Artifacts[1].GetRole())
			require.Equal(t, c.from, p.spec.Artifacts[1].GetPath())
			require.EqualValues(t, 1_000_000+1000*4096+500, p.Plan.GetTotalBytes())
			require.Positive(t, p.Auxiliaries[0].WeightBytes)
			require.EqualValues(t, 4*p.spec.Composition.GetRows(), compose.PhaseRows(p.spec.Composition), "verification carries the draft and the token before it")
		})
	}
	p, err := planWith(t, speculator(), Choices{Draft: Draft{From: "ngram"}}, Wishes{})
	require.NoError(t, err)
	require.Equal(t, "ngram", p.spec.Composition.GetDraft().GetKind())
	require.EqualValues(t, defaultDepth, p.spec.Composition.GetDraft().GetDepth(), "every field is resolved")
	require.Len(t, p.spec.Artifacts, 1)
}

// A model's own head is found without a name: in its folder, or by the names of tensors that its family's record gives.
func TestAModelsOwnHeadIsFound(t *testing.T) {
	open := func(c tiny.Checkpoint, beside string) *Decision {
		path, err := c.Write(t.TempDir())
		require.NoError(t, err)
		if beside != "" {
			require.NoError(t, os.MkdirAll(filepath.Join(path, "mtp"), 0o700))
			put(t, filepath.Join(path, "mtp", "model.safetensors"), 8)
			require.NoError(t, os.WriteFile(filepath.Join(path, "mtp", "config.json"), []byte(beside), 0o600))
		}
		return &Decision{Model: hub.Model{Path: path}}
	}
	const head = `{"model_type":"qwen3_5_mtp"}`
	for name, c := range map[string]struct {
		model, beside, word, kind string
	}{
		"bundled":          {"qwen35-hf-mtp", "", "mtp", "checkpoint-mtp"},
		"in its folder":    {"qwen35-hf-mtp", head, "mtp", "mtp"},
		"asked by kind":    {"qwen35-hf-mtp", head, "checkpoint-mtp", "checkpoint-mtp"},
		"found, bundled":   {"qwen35-mlx-mtp", "", "auto", "checkpoint-mtp"},
		"found, a folder":  {"qwen35-hf", head, "auto", "mtp"},
		"none to be found": {"qwen35-hf", "", "auto", "ngram"},
		"none, but asked":  {"qwen35-hf", "", "mtp", "checkpoint-mtp"}, // the plugin says that there is none
	} {
		t.Run(name, func(t *testing.T) {
			m := open(tiny.Qwen35(c.model)[0], c.beside).Model
			d, err := hostOf(t, newFake()).DecideWith(m, Choices{Draft: Draft{From: c.word}})
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			require.Equal(t, c.kind, d.draft.GetKind())
			require.Equal(t, c.kind == "mtp", d.draft.Dir != nil)
		})
	}
	m := open(tiny.Qwen35("qwen35-hf")[0], `{"model_type":"gemma4_assistant"}`).Model
	_, err := hostOf(t, newFake()).DecideWith(m, Choices{Draft: Draft{From: "mtp"}})
	refused(t, err, contract.InvalidArgument, 2, "mtp is no head, but a draft of kind assistant; name it with --draft ")
}

// A wish for a draft, an adapter or a program is honoured or refused, never left out.
func TestRefusalsOfWhatGoesWithAModel(t *testing.T) {
	other := tinyModel(t).Path
	bare, broken := t.TempDir(), t.TempDir()
	for _, dir := range []string{bare, broken} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, lora.ConfigFile), []byte(`{"lora_parameters":{"rank":1,"scale":1}}`), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(broken, "adapters.safetensors"), []byte("x"), 0o600))
	for name, c := range map[string]struct {
		choices Choices
		kind    contract.Kind
		exit    int
		text    string
	}{
		"depth alone":       {Choices{Draft: Draft{Depth: 2}}, contract.InvalidArgument, 2, "draft: a depth of 2 is of no use without a draft; name one with --draft"},
		"too deep":          {Choices{Draft: Draft{From: other, Depth: 65}}, contract.InvalidArgument, 2, "draft: a depth of 65 is over the limit of 64"},
		"no such draft":     {Choices{Draft: Draft{From: "/nowhere"}}, contract.NotFound, 5, "/nowhere: no such file"},
		"unknown draft":     {Choices{Draft: Draft{From: draftFolder(t, `{"model_type":"gpt2"}`, 8)}}, contract.UnsupportedModel, 3, "gpt2: no family takes this model_type"},
		"another plugin's":  {Choices{Draft: Draft{From: sample(t, "qwen3-0.6b").Path}}, contract.UnsupportedOption, 2, "is of plugin qwen, the model of universal, and one process opens both"},
		"an empty adapter":  {Choices{Adapters: []string{bare}}, contract.NotFound, 5, "adapters.safetensors: no such file, which an adapter of mlx-lm has"},
		"no adapter":        {Choices{Adapters: []string{other}}, contract.NotFound, 5, "adapter_config.json: no such file"},
		"a broken adapter":  {Choices{Adapters: []string{broken}}, contract.ArtifactCorrupt, 5, "adapters.safetensors: header: the file has 1 bytes"},
		"an adapter twice":  {Choices{Adapters: []string{adapterFolder(t), ""}}, contract.InvalidArgument, 2, "is named twice"},
		"a speaking draft":  {Choices{Draft: Draft{From: sample(t, "whisper-tiny").Path}}, contract.UnsupportedOption, 2, "is of plugin whisper"},
		"a draft of config": {Choices{Draft: Draft{From: draftFolder(t, `{"model_type":"llama"}`, 8)}}, contract.ArtifactCorrupt, 5, "config.json: "},
	} {
		t.Run(name, func(t *testing.T) {
			if list := c.choices.Adapters; len(list) == 2 {
				list[1] = list[0]
			}
			_, err := hostOf(t, newFake()).DecideWith(tinyModel(t), c.choices)
			refused(t, err, c.kind, c.exit, c.text)
		})
	}
	for text, c := range map[string]Choices{
		"draft: the model's plugin does not speculate with two-model " + other + ", at most 4 tokens; leave --draft out": {Draft: Draft{From: other}},
		"draft: the model's plugin does not speculate with ngram, at most 4 tokens":                                      {Draft: Draft{From: "ngram"}},
		"adapters: the model's plugin does not honour it":                                                                {Adapters: []string{adapterFolder(t)}},
	} {
		_, err := planWith(t, newFake(), c, Wishes{})
		refused(t, err, contract.UnsupportedOption, 2, text)
	}
	f := speculator()
	f.plan = newFake().plan
	_, err := planWith(t, f, Choices{Draft: Draft{From: other}}, Wishes{})
	refused(t, err, contract.PluginMismatch, 1, "universal: plans without a line for "+other+", which goes with the model")
}

// adapterBytes is what the tensors of adapterFolder take.
const adapterBytes = 2 * 4 * (4*64 + 64*4 + 4*64 + 32*4)

func adapterFolder(t *testing.T) string {
	t.Helper()
	path, err := tiny.LlamaAdapters("mlx-attention")[0].Write(t.TempDir())
	require.NoError(t, err)
	return path
}

func TestAdaptersGoInTheirOrder(t *testing.T) {
	one, two := adapterFolder(t), adapterFolder(t)
	p, err := planWith(t, speculator(), Choices{Adapters: []string{"second=" + two + ":0.5", one}}, Wishes{})
	require.NoError(t, err)
	require.Equal(t, []string{"second", "mlx-attention"}, p.spec.Composition.GetAdapters())
	require.Len(t, p.spec.Artifacts, 3)
	first := p.spec.Artifacts[1]
	require.Equal(t, []any{cladev1.Role_ROLE_ADAPTER, two, "second", 0.5}, []any{first.GetRole(), first.GetPath(), first.GetId(), first.GetScale()})
	require.Nil(t, p.spec.Artifacts[2].Scale)
	require.EqualValues(t, adapterBytes, p.Auxiliaries[1].WeightBytes)
}

func TestNamesAndScalesOfAdapters(t *testing.T) {
	half := 0.5
	for text, want := range map[string]AdapterWish{
		"/a/b": {"b", "/a/b", nil}, "/a/b:0.5": {"b", "/a/b", &half}, "x=/a/b": {"x", "/a/b", nil}, "org/x=/a/b:0.5": {"org/x", "/a/b", &half},
		"/a/b:c": {"", "/a/b:c", nil},
	} {
		got, err := ParseAdapter(text)
		if want.ID == "" {
			refused(t, err, contract.InvalidArgument, 2, "give it a name: NAME=FOLDER")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "x=", "/a/b:NaN", "x=/a:1e9"} {
		_, err := ParseAdapter(text)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), text)
	}
}

// seeing is the tiny model with a vision tower in a file of its own.
func seeing(t *testing.T, tower []byte) hub.Model {
	t.Helper()
	c := tiny.Llama("llama-f32")[0]
	c.Config = maps.Clone(c.Config)
	dir, err := c.Write(t.TempDir())
	require.NoError(t, err)
	path := filepath.Join(dir, artifact.VisionSidecarFile)
	if put(t, path, 200); tower != nil {
		require.NoError(t, os.WriteFile(path, tower, 0o600))
	}
	return hub.Model{ID: "seeing", Path: dir}
}

func TestATowerInItsOwnFileIsListedAndPlannedWhereItIsOpened(t *testing.T) {
	plan := func(f *fakePlugin, tower []byte) (*Planned, error) {
		d, err := hostOf(t, f).Decide(seeing(t, tower))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		p, err := d.Plan(t.Context(), Wishes{})
		if err == nil {
			p.Stop()
		}
		return p, err
	}
	p, err := plan(speculator(), nil)
	require.NoError(t, err)
	require.Len(t, p.spec.Artifacts, 1)
	require.Equal(t, "sidecar", p.Auxiliaries[0].RoleName())
	require.EqualValues(t, 200, p.Auxiliaries[0].WeightBytes)
	require.Equal(t, "plugin universal takes no media", p.Auxiliaries[0].Unused)
	p, err = plan(speculator("media"), nil)
	require.NoError(t, err)
	require.Equal(t, cladev1.Role_ROLE_SIDECAR, p.spec.Artifacts[1].GetRole())
	require.Empty(t, p.Auxiliaries[0].Unused)
	_, err = plan(speculator(), []byte("x"))
	require.NoError(t, err, "what nobody opens stops no chat")
	_, err = plan(speculator("media"), []byte("x"))
	refused(t, err, contract.ArtifactCorrupt, 5, "optiq_vision.safetensors: header")
}

// A program runs where it can; where it cannot it is listed with the reason and never an error. A name that the graph does not
// have is one.
func TestAProgramIsUsedWhereItCanRun(t *testing.T) {
	plan := func(device string, programs ...string) (*Planned, error) {
		f := newFake()
		f.table.Entries[0].Programs = []string{"ane-mlp", "ane-head"}
		f.options = append(f.options, "programs")
		old := f.plan
		f.plan = func(req *cladev1.PlanRequest) (*cladev1.Plan, error) {
			p, err := old(req)
			p.Device = device
			return p, err
		}
		return planWith(t, f, Choices{Programs: programs}, Wishes{})
	}
	p, err := plan("cpu-test", "ane-mlp")
	require.NoError(t, err)
	require.Empty(t, p.spec.Composition.GetPrograms())
	require.Equal(t, Program{ID: "ane-mlp", Reason: "no auxiliary processor beside device cpu-test"}, p.Programs()[0])
	require.Equal(t, "none (ane-mlp: no auxiliary processor beside device cpu-test)", fieldOf(p, "programs").Value)
	p, err = plan("metal-applegpu_g16s", "ane-mlp")
	require.NoError(t, err)
	require.Equal(t, []string{"ane-mlp"}, p.spec.Composition.GetPrograms())
	require.Equal(t, []Program{{ID: "ane-mlp", Available: true}, {ID: "ane-head", Reason: "nobody asked for it (--program ane-head)"}}, p.Programs())
	_, err = plan("cpu-test", "warp")
	refused(t, err, contract.InvalidArgument, 2, `program: "warp" is not one of graph llama: ane-mlp, ane-head`)
}

func fieldOf(p *Planned, name string) compose.Field {
	for _, f := range p.Composition.Fields {
		if f.Name == name {
			return f
		}
	}
	return compose.Field{}
}

func TestTheEstimateCountsWhatGoesWithTheModel(t *testing.T) {
	estimate := func(c Choices) int64 {
		d, err := hostOf(t, newFake()).DecideWith(tinyModel(t), c)
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		fit, err := d.Estimate(1024)
		require.NoError(t, err)
		return fit.TotalBytes
	}
	plain := estimate(Choices{})
	require.EqualValues(t, adapterBytes, estimate(Choices{Adapters: []string{adapterFolder(t)}})-plain)
	d, err := hostOf(t, newFake()).Decide(tinyModel(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	fit, err := d.Estimate(1024)
	require.NoError(t, err)
	require.Equal(t, d.Artifact.Bytes()+fit.KVBytes, estimate(Choices{Draft: Draft{From: tinyModel(t).Path}})-plain, "its weights and its cache")
}
