package loader

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/hub"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// ownManifest is a caller's own plugin: a type that no family knows, read by a dialect of its own.
const ownManifest = `{schema: 1, name: own, version: 1.0.0, contract: [1], families: [{graph: example.org/own, label: own, tier: targeted, status: available,
	model_types: [own], accepts: [{path: model_type, op: eq, value: never}], config: {from: [$], rename: {width: hidden_size}, INSPECT}, loaders: [safetensors, colibri], loop: autoregressive,
	fidelity: l3-measured, specialization: dedicated, profile: own, capabilities: [own-graph], fingerprint: FINGERPRINT}]}`

func ownDescribe(inspect, fingerprint string) *cladev1.DescribeResponse {
	text := strings.ReplaceAll(strings.Replace(ownManifest, "FINGERPRINT", fingerprint, 1), "INSPECT", inspect)
	return &cladev1.DescribeResponse{Name: "own", Version: "1.0.0", ManifestJson: text, GraphTables: []*cladev1.GraphTable{{
		Graph: "example.org/own", Entries: []*cladev1.GraphEntry{
			{Id: "narrow", Serves: &cladev1.GraphKey{Device: new("metal-x")}}, {Id: "wide"},
		},
	}}}
}

func ownPlugin() Plugin {
	nothing := func(*cladev1.DescribeResponse) error { return nil }
	return Plugin{Name: "own", Exe: "/own", Verify: func() error { return nil }, Check: nothing}
}

// unknownModel has a model_type that no family knows.
func unknownModel(t *testing.T, weights string) hub.Model {
	t.Helper()
	samples, err := corefamily.Corpus()
	require.NoError(t, err)
	s := samples[0]
	s.Name, s.Path, s.KVConfigJSON, s.ConfigJSON = "unknown", "", nil, []byte(`{"model_type":"never-heard-of","width":8}`)
	if weights == "colibri" {
		s.Format = "colibri"
	}
	return sampleModel(t, s)
}

func TestACallersOwnGraphNeedsNoFamilyAndNoProfile(t *testing.T) {
	for id, entry := range map[string]string{"narrow": "narrow", "wide": "wide", "example.org/own": "wide"} {
		own, err := NewOwn(ownPlugin(), ownDescribe("", "config"), id)
		require.NoError(t, err, id)
		f := newFake()
		f.table = ownDescribe("", "config").GraphTables[0]
		d, err := hostOf(t, f).DecideWith(unknownModel(t, ""), Choices{Own: own})
		require.NoError(t, err)
		p, err := d.Plan(t.Context(), Wishes{})
		require.NoError(t, err)
		require.Equal(t, entry, p.Proposed, "keys are bypassed")
		require.True(t, p.spec.GetGraphRequired())
		require.Empty(t, p.Profile.GetId())
		require.True(t, p.Profile.GetFromCaller())
		width, _, err := p.Parsed.Int("hidden_size")
		require.NoError(t, err)
		require.EqualValues(t, 8, width, "the plugin's own dialect reads the config")
		p.Stop()
		require.NoError(t, d.Close())
	}
	_, err := NewOwn(ownPlugin(), ownDescribe("", "config"), "deep")
	refused(t, err, contract.InvalidArgument, 2, `graph: "deep" is not in the tables of plugin own: narrow, wide`)
	bad := ownDescribe("", "config")
	bad.GraphTables[0].Graph = "example.org/undeclared"
	_, err = NewOwn(ownPlugin(), bad, "wide")
	refused(t, err, contract.PluginMismatch, 1, "graph table of a graph that plugin.yaml does not declare")
	bad.ManifestJson = "{"
	_, err = NewOwn(ownPlugin(), bad, "wide")
	refused(t, err, contract.PluginMismatch, 1, "bad manifest")
}

func TestACallersOwnGraphIsStillHeldToTheFormat(t *testing.T) {
	own, err := NewOwn(ownPlugin(), ownDescribe("", "config"), "wide")
	require.NoError(t, err)
	_, err = hostOf(t, newFake()).DecideWith(unknownModel(t, "colibri"), Choices{Own: own})
	refused(t, err, contract.UnsupportedModelLoad, 3, "wide cannot stand in for a streamed graph; refusing to fall back")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m.gguf"), nil, 0o600))
	_, err = hostOf(t, newFake()).DecideWith(hub.Model{Path: dir}, Choices{Own: own})
	require.Error(t, err)
}

// What data cannot express is asked of the plugin, and what follows from it is decided again.
func TestThePluginSaysWhatDataCannotExpress(t *testing.T) {
	own, err := NewOwn(ownPlugin(), ownDescribe("inspect: true", "plugin"), "wide")
	require.NoError(t, err)
	plan := func(said *cladev1.InspectResponse) (*Planned, error) {
		f := newFake()
		f.table = ownDescribe("", "config").GraphTables[0]
		f.inspect = func(req *cladev1.InspectRequest) (*cladev1.InspectResponse, error) {
			require.Equal(t, "example.org/own", req.GetGraph())
			return said, nil
		}
		d, err := hostOf(t, f).DecideWith(unknownModel(t, ""), Choices{Own: own})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		require.Empty(t, d.GraphFingerprint)
		p, err := d.Plan(t.Context(), Wishes{})
		if err == nil {
			p.Stop()
		}
		return p, err
	}
	p, err := plan(&cladev1.InspectResponse{GraphFingerprint: new("feedbeef00000000"), ParsedConfigJson: new(`{"hidden_size":99}`)})
	require.NoError(t, err)
	require.Equal(t, "feedbeef00000000", p.GraphFingerprint)
	require.Equal(t, `{"hidden_size":99}`, p.spec.GetParsedConfigJson())
	require.Equal(t, p.ConfigFingerprint, p.spec.GetConfigFingerprint())
	_, err = plan(&cladev1.InspectResponse{GraphFingerprint: new("feedbeef00000000")})
	refused(t, err, contract.PluginMismatch, 1, "parses the configs of example.org/own itself, and Inspect gave none")
	_, err = plan(&cladev1.InspectResponse{ParsedConfigJson: new(`{}`)})
	refused(t, err, contract.PluginMismatch, 1, "computes the graph fingerprint of example.org/own itself, and Inspect gave none")
	_, err = plan(&cladev1.InspectResponse{GraphFingerprint: new("f"), ParsedConfigJson: new(`[`)})
	refused(t, err, contract.ArtifactCorrupt, 5, "not valid JSON")
}
