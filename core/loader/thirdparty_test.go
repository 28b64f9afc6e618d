package loader

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/compose"
	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/core/plugins"
	"github.com/clademl/clade/core/supervise"
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// thirdPartySource is a plugin as an outsider writes one.
const thirdPartySource = "../../sdk/plugintest/thirdparty"

// thirdParty builds it into a plugins folder and seals it, once.
var thirdParty = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(modelDir, "plugins")
	folder := filepath.Join(dir, "abacus")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(folder, "clade-abacus"), ".")
	build.Dir = thirdPartySource
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", err
	}
	manifest, err := os.ReadFile(filepath.Join(thirdPartySource, "plugin.yaml"))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(folder, "plugin.yaml"), manifest, 0o600); err != nil {
		return "", err
	}
	return dir, plugins.WriteReceipt(folder)
})

// hostOfThird is a host as the command line makes it, over real processes, with the third-party plugin alone installed.
func hostOfThird(t *testing.T) (*Host, plugins.Set) {
	t.Helper()
	dir, err := thirdParty()
	require.NoError(t, err)
	set := plugins.Discover(dir)
	require.Empty(t, set.Problems)
	require.Len(t, set.Plugins, 1)
	offers, err := corefamily.Embedded()
	require.NoError(t, err)
	require.NoError(t, corefamily.CheckInstall(offers, set.Plugins[0].Manifest))
	list, problems := corefamily.New(append(offers, corefamily.Offer{Manifest: set.Plugins[0].Manifest, Source: corefamily.FromInstalled}))
	require.Empty(t, problems)
	verifier := &plugins.Verifier{}
	return &Host{
		Families: list, RuntimeDir: t.TempDir(), Budget: 1 << 30,
		Find: func(name string) (Plugin, error) {
			in, err := set.Find(name)
			return Plugin{Name: in.Name, Exe: in.Exe, Verify: func() error { return verifier.Verify(in) }, Check: in.CheckDescribe}, err
		},
	}, set
}

const abacusConfig = `{"model_type":"abacus_old","stop":[7],"frame":{"rods":3,"width":64,"beads":10,"reach":512,"sliding_window":8}}`

// abacus writes a model of the third-party family into folder.
func abacus(t *testing.T, folder, config string) hub.Model {
	t.Helper()
	dir := filepath.Join(t.TempDir(), folder)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
	require.NoError(t, artifact.WriteSafetensors(filepath.Join(dir, "model.safetensors"), nil, nil))
	return hub.Model{ID: "abacus", Path: dir}
}

// What goes with a model reaches a plugin of anybody's by role, and its plan has to say what it takes.
func TestAThirdPartyIsGivenWhatGoesWithAModelByRole(t *testing.T) {
	h, _ := hostOfThird(t)
	draft, one := abacus(t, "draft", abacusConfig), adapterFolder(t)
	p := count(t, h, abacus(t, "plain", abacusConfig), Choices{Draft: Draft{From: draft.Path, Depth: 2}, Adapters: []string{one}}, Wishes{})
	var lines []string
	for _, l := range p.Plan.GetLines() {
		lines = append(lines, l.GetName()+" "+l.GetDetail())
	}
	require.Equal(t, []string{"process ", "auxiliaries ROLE_DRAFT " + draft.Path, "auxiliaries ROLE_ADAPTER " + one}, lines)
	require.EqualValues(t, 6, compose.PhaseRows(p.spec.Composition), "two rows of their own family's default, each with two drafted tokens and the one before")
	d, err := h.DecideWith(abacus(t, "plain", abacusConfig), Choices{Draft: Draft{From: "ngram"}})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	p, err = d.Plan(t.Context(), Wishes{})
	require.NoError(t, err)
	defer p.Stop()
	_, err = h.DecideWith(abacus(t, "plain", abacusConfig), Choices{Draft: Draft{From: tinyModel(t).Path}})
	refused(t, err, contract.UnsupportedOption, 2, "is of plugin universal, the model of abacus")
}

const acme = "models--acme--abacus/snapshots/00112233445566778899aabbccddeeff00112233"

// count opens a model with choices and wishes, generates three tokens after 41 and gives what was planned.
func count(t *testing.T, h *Host, m hub.Model, c Choices, w Wishes) *Planned {
	t.Helper()
	d, err := h.DecideWith(m, c)
	require.NoError(t, err)
	p, err := d.Plan(t.Context(), w)
	require.NoError(t, err)
	model, err := p.Open(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, model.Close(t.Context())) }()
	var got []int32
	_, err = model.Generate(t.Context(), generate.Prompt{IDs: []int32{40, 41}}, generate.Settings{}, func(d generate.Delta) error {
		got = append(got, d.IDs...)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []int32{42, 43, 44}, got)
	return p
}

func TestAThirdPartyAddsAFamilyAProfileAndAnImplementation(t *testing.T) {
	h, _ := hostOfThird(t)
	var w Wishes

	p := count(t, h, abacus(t, "plain", abacusConfig), Choices{}, w)
	require.Equal(t, "abacus-dedicated", p.Profile.GetId())
	require.Equal(t, "plain", p.Proposed)
	require.Equal(t, "fast wants KV f32, this has native", p.ProposedWhy)
	require.JSONEq(t, `{"model_type":"abacus","num_hidden_layers":3,"hidden_size":64,"beads":10,"max_position_embeddings":512,"sliding_window":8,
		"hands":2,"num_attention_heads":2,"head_dim":32,"layer_types":["sliding_attention","full_attention","full_attention"],"eos_token_ids":[7]}`, p.Parsed.JSON())
	require.NotEqual(t, p.ConfigFingerprint, p.GraphFingerprint, "the graph is told by the record's own fields")
	require.EqualValues(t, 2, p.Composition.Proto.GetRows())
	require.EqualValues(t, 16, p.Composition.Proto.GetMaxGeneration())
	g, err := p.Parsed.Geometry()
	require.NoError(t, err)
	require.Len(t, g.Layers, 3)

	w.KV = "f32"
	p = count(t, h, abacus(t, acme, abacusConfig), Choices{}, w)
	require.Equal(t, "abacus-of-acme", p.Profile.GetId(), "the exact artifact outranks the family")
	require.True(t, p.Profile.GetExactArtifact())
	require.Equal(t, "fast", p.Proposed)
	require.Equal(t, []Program{{ID: "ane-beads", Reason: "no auxiliary processor beside device cpu-abacus"}}, p.Programs())

	none := ""
	p = count(t, h, abacus(t, acme, abacusConfig), Choices{ArtifactFingerprint: &none}, w)
	require.Equal(t, "abacus-dedicated", p.Profile.GetId())

	p = count(t, h, tinyModel(t), Choices{Implementation: "abacus-dense"}, Wishes{})
	require.Equal(t, "universal-dense", p.Family.Record.Graph)
	require.Equal(t, "abacus", p.Plugin.Name)
	require.Equal(t, "abacus-dense", p.Proposed)
}

func TestAThirdPartysModelIsRefusedByItsOwnRules(t *testing.T) {
	h, _ := hostOfThird(t)
	for config, c := range map[string]struct {
		kind contract.Kind
		exit int
		text string
	}{
		`{"model_type":"abacus","frame":{"rods":3,"width":64,"beads":0}}`:   {contract.UnsupportedModel, 3, "example.org/abacus wants beads at least 1, this has 0"},
		`{"model_type":"abacus","frame":{"rods":3,"width":64,"beads":101}}`: {contract.UnsupportedModel, 3, "so many beads are not run"},
		`{"model_type":"abacus","frame":{"rods":3,"width":63,"beads":1}}`:   {contract.ArtifactCorrupt, 5, "hands must share the width"},
		`{"model_type":"abacus","frame":{"width":64,"beads":1}}`:            {contract.ArtifactCorrupt, 5, "num_hidden_layers: is missing"},
	} {
		_, err := h.Decide(abacus(t, "m", config))
		refused(t, err, c.kind, c.exit, c.text)
	}
	_, err := h.Decide(abacus(t, acme, `{"model_type":"abacus","frame":{"rods":4,"width":64,"beads":1}}`))
	refused(t, err, contract.UnsupportedModelLoad, 3, "abacus-of-acme: declares config")
}

// The dialect says where a model's end tokens stand: in the file's own "stop" here, which no other reader knows.
func TestEndTokensAreWhatTheFamilysDialectSays(t *testing.T) {
	h, _ := hostOfThird(t)
	for config, want := range map[string][]int32{
		`{"model_type":"abacus","stop":[43,9],"frame":{"rods":3,"width":64,"beads":1}}`:    {43, 9},
		`{"model_type":"abacus","stop":5,"frame":{"rods":3,"width":64,"beads":1}}`:         {5},
		`{"model_type":"abacus","eos_token_id":3,"frame":{"rods":3,"width":64,"beads":1}}`: {0},
	} {
		d, err := h.Decide(abacus(t, "m", config))
		require.NoError(t, err)
		got, err := stopIDs(d, nil)
		require.NoError(t, err)
		require.Equal(t, want, got, config)
		require.NoError(t, d.Close())
	}
}

func TestAnUnknownTypeRunsWithTheCallersOwnPluginAndGraph(t *testing.T) {
	h, set := hostOfThird(t)
	in := set.Plugins[0]
	process, err := supervise.Start(t.Context(), supervise.Spec{Path: in.Exe, RuntimeDir: h.RuntimeDir})
	require.NoError(t, err)
	said, err := process.Describe(t.Context())
	require.NoError(t, err)
	require.NoError(t, process.Stop(t.Context()))
	nothing := Plugin{Name: in.Name, Exe: in.Exe, Verify: func() error { return nil }, Check: func(*cladev1.DescribeResponse) error { return nil }}
	own, err := NewOwn(nothing, said, "plain")
	require.NoError(t, err)
	m := abacus(t, "m", `{"model_type":"nobody-knows-this","rods":1,"width":8,"beads":5}`)
	_, err = h.Decide(m)
	refused(t, err, contract.UnsupportedModel, 3, "nobody-knows-this: no family takes this model_type")
	p := count(t, h, m, Choices{Own: own}, Wishes{})
	require.Equal(t, "plain", p.Proposed)
	require.Empty(t, p.Profile.GetId())
}
