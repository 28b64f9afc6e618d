package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func openEcho(t *testing.T) *artifact.Artifact {
	t.Helper()
	a, err := artifact.Open(echoModel())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

func echoFamily(f *fake, edit func(manifest string) string) Family {
	manifest := string(fakeManifest)
	if edit != nil {
		manifest = edit(manifest)
	}
	return Family{Manifest: []byte(manifest), Backend: f, Options: []*cladev1.Option{{Path: "device"}}}
}

func TestACreatedModelLeavesTheArtifactToItsCaller(t *testing.T) {
	a, f := openEcho(t), &fake{}
	m, err := Create(t.Context(), echoFamily(f, nil), a, spec(), "/runtime")
	require.NoError(t, err)
	require.NoError(t, m.Close())
	require.EqualValues(t, 1, f.loads.Load())

	f.open = func(context.Context) error { return errors.New("no") }
	_, err = Create(t.Context(), echoFamily(f, nil), a, spec(), "/runtime")
	require.ErrorContains(t, err, "no")
	require.Len(t, a.Tensors(), 1)
	_, err = a.ReadAt(a.Tensors()[0], make([]byte, 1), 0)
	require.NoError(t, err, "still open")
}

func TestOnlyResidentCellsAreCreated(t *testing.T) {
	a := openEcho(t)
	speech := func(m string) string {
		return strings.Replace(m, "loop: autoregressive", "loop: encoder-decoder", 1)
	}
	for name, c := range map[string]struct {
		edit    func(string) string
		change  func(*cladev1.ModelSpec)
		kind    contract.Kind
		mention string
	}{
		"speech": {speech, func(m *cladev1.ModelSpec) {
			m.Profile.Loop, m.Profile.RequiredCapabilities = "encoder-decoder", []string{"chat", "encoder-decoder", "safetensors"}
		}, contract.UnsupportedModelLoad, "a speech model does not generate text; transcribe audio with it"},
		"an undeclared option": {nil, func(m *cladev1.ModelSpec) { m.Composition.Dtype = ptr("float32") }, contract.UnsupportedOption, "dtype"},
		"another profile":      {nil, func(m *cladev1.ModelSpec) { m.Profile.Id = "x" }, contract.PluginMismatch, "has profile echo-resident"},
		"no profile":           {nil, func(m *cladev1.ModelSpec) { m.Profile = nil }, contract.InvalidArgument, "are needed"},
	} {
		f := &fake{}
		_, err := Create(t.Context(), echoFamily(f, c.edit), a, spec(c.change), "/runtime")
		kindIs(t, err, c.kind, c.mention)
		require.Zero(t, f.loads.Load(), "%s: refused before the runtime is opened", name)
	}
	_, err := Create(t.Context(), Family{Manifest: fakeManifest}, a, spec(), "")
	kindIs(t, err, contract.UnsupportedModel, "cannot run them yet")
}

func TestStreamedWeightsAreNotCreated(t *testing.T) {
	streamed := func(m string) string {
		return strings.Replace(m, "loaders: [safetensors, gguf]", "loaders: [colibri]", 1)
	}
	a := &artifact.Artifact{Path: "/m", Format: artifact.Colibri}
	_, err := Create(t.Context(), echoFamily(&fake{}, streamed), a, spec(func(m *cladev1.ModelSpec) {
		m.Profile.Loader, m.Profile.RequiredCapabilities = "colibri", []string{"autoregressive", "chat", "colibri-container"}
	}), "/runtime")
	kindIs(t, err, contract.UnsupportedModelLoad, "echo-resident: streamed weights are opened by their folder, not handed over; open the folder")
}
