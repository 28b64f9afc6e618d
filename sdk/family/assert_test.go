package family

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func TestAProfileIsAssertedAgain(t *testing.T) {
	r := recordOf(t, "qwen3")
	good := func() *cladev1.Profile {
		return &cladev1.Profile{
			Id: "qwen3-dedicated", Fidelity: "l1-mlx-lm", Specialization: "dedicated", Loader: "safetensors", Loop: "autoregressive",
			RequiredCapabilities: []string{"autoregressive", "qwen3-graph", "safetensors"}, ConfigFingerprint: proto.String("c"),
		}
	}
	require.NoError(t, AssertProfile(good(), r))
	for name, c := range map[string]struct {
		edit    func(*cladev1.Profile)
		kind    contract.Kind
		mention string
	}{
		"no cell":             {func(p *cladev1.Profile) { p.Loader = "tape" }, contract.UnsupportedModelLoad, "no way to open"},
		"loader not its":      {func(p *cladev1.Profile) { p.Loader = "colibri" }, contract.UnsupportedModelLoad, "qwen3 opens safetensors, gguf, not colibri"},
		"loop not its":        {func(p *cladev1.Profile) { p.Loop = "diffusion" }, contract.UnsupportedModelLoad, "qwen3 runs the loop autoregressive"},
		"other id":            {func(p *cladev1.Profile) { p.Id = "x" }, contract.PluginMismatch, "has profile qwen3-dedicated"},
		"no id":               {func(p *cladev1.Profile) { p.Id = "" }, contract.PluginMismatch, "has no id"},
		"other fidelity":      {func(p *cladev1.Profile) { p.Fidelity = "l3-measured" }, contract.PluginMismatch, "is held to l1-mlx-lm"},
		"other use":           {func(p *cladev1.Profile) { p.Specialization = "generic" }, contract.PluginMismatch, "is dedicated, not generic"},
		"capability short":    {func(p *cladev1.Profile) { p.RequiredCapabilities = p.RequiredCapabilities[:2] }, contract.PluginMismatch, "does not require safetensors"},
		"exact, not said":     {func(p *cladev1.Profile) { p.Specialization = "artifact" }, contract.PluginMismatch, "contradict each other"},
		"exact, unidentified": {func(p *cladev1.Profile) { p.Specialization, p.ExactArtifact = "artifact", true }, contract.PluginMismatch, "needs both fingerprints"},
	} {
		p := good()
		c.edit(p)
		err := AssertProfile(p, r)
		require.Equal(t, c.kind, contract.KindOf(err), name)
		require.ErrorContains(t, err, c.mention, name)
	}
	own := &cladev1.Profile{Loader: "safetensors", Loop: "autoregressive", FromCaller: true}
	require.NoError(t, AssertProfile(own, r), "a caller's own plugin and graph claims nothing more")
	require.NoError(t, AssertProfile(good(), nil), "an implementation stands in for a family of another plugin")
}
