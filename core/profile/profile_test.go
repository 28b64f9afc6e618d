package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/family"
)

const (
	qwenArtifact = "hf:mlx-community/Qwen3.8-27B-OptiQ-4bit@b04599de95d7a9bfbd7f208d347c0f10d9432a42"
	qwenConfig   = "50117975cb405944"
	glmArtifact  = "hf:mateogrgic/GLM-5.2-colibri-int4-with-int8-mtp@3cc8db99b1b13fc79325d987ba3c1c430766b3b8"
)

// families are the first-party ones and what manifests in YAML add.
func families(t *testing.T, more ...string) *corefamily.List {
	t.Helper()
	offers, err := corefamily.Embedded()
	require.NoError(t, err)
	for _, text := range more {
		m, err := family.ParseManifest([]byte(text))
		require.NoError(t, err)
		offers = append(offers, corefamily.Offer{Manifest: m, Source: corefamily.FromInstalled})
	}
	l, problems := corefamily.New(offers)
	require.Empty(t, problems)
	return l
}

// input is the known Qwen artifact.
func input(t *testing.T, l *corefamily.List) Input {
	t.Helper()
	e, ok := l.ByGraph("qwen3.5")
	require.True(t, ok)
	return Input{Record: e.Record, Format: artifact.Safetensors, ConfigFingerprint: qwenConfig, ArtifactFingerprint: qwenArtifact, Families: l}
}

func TestExactArtifactOutranksTheFamily(t *testing.T) {
	in := input(t, families(t))
	r, err := Resolve(in)
	require.NoError(t, err)
	require.Equal(t, "qwen3.8-27b-optiq-4bit", r.Profile.Id)
	require.True(t, r.Profile.ExactArtifact)
	require.Equal(t, "artifact", r.Profile.Specialization)
	require.Equal(t, qwenArtifact, r.Profile.GetArtifactFingerprint())
	require.Equal(t, []string{"autoregressive", "qwen3.5-graph", "recurrent-state", "safetensors"}, r.Profile.RequiredCapabilities)
	require.NoError(t, family.AssertProfile(r.Profile, in.Record), "the plugin agrees")
	require.Nil(t, r.Implementation)

	for name, fingerprint := range map[string]string{"nothing says what it is": "", "another artifact": "hf:o/n@1"} {
		other := in
		other.ArtifactFingerprint = fingerprint
		r, err = Resolve(other)
		require.NoError(t, err, name)
		require.Equal(t, "qwen3.5-dedicated", r.Profile.Id)
		require.False(t, r.Profile.ExactArtifact)
		require.Equal(t, fingerprint != "", r.Profile.ArtifactFingerprint != nil)
		require.NoError(t, family.AssertProfile(r.Profile, in.Record))
	}
}

func TestAnExactMatchThatDisagreesIsNeverAQuieterChoice(t *testing.T) {
	l := families(t)
	glm, _ := l.ByGraph("glm5.2")
	for mention, edit := range map[string]func(*Input){
		"declares config 50117975cb405944 for hf:mlx-community":   func(i *Input) { i.ConfigFingerprint = "c2" },
		"declares graph qwen3.5, the model's config is of glm5.2": func(i *Input) { i.Record = glm.Record },
		"declares loader safetensors, the model is gguf":          func(i *Input) { i.Format = artifact.GGUF },
	} {
		in := input(t, l)
		edit(&in)
		_, err := Resolve(in)
		require.Equal(t, contract.UnsupportedModelLoad, contract.KindOf(err), mention)
		require.Equal(t, 3, contract.KindOf(err).ExitCode())
		require.ErrorContains(t, err, "qwen3.8-27b-optiq-4bit: ")
		require.ErrorContains(t, err, mention)
	}
}

func TestFormatPicksTheProfileAndAnUnlistedOneIsRefused(t *testing.T) {
	l := families(t)
	dense, _ := l.ByGraph("universal-dense")
	r, err := Resolve(Input{Record: dense.Record, Format: artifact.GGUF, Families: l})
	require.NoError(t, err)
	require.Equal(t, "universal-dense-gguf", r.Profile.Id)
	require.Equal(t, string(family.L3Measured), r.Profile.Fidelity)
	gemma, _ := l.ByGraph("gemma4")
	_, err = Resolve(Input{Record: gemma.Record, Format: artifact.GGUF, Families: l})
	require.Equal(t, contract.UnsupportedModelLoad, contract.KindOf(err))
	require.Equal(t, 3, contract.KindOf(err).ExitCode())
	require.EqualError(t, err, "gemma4-dedicated: gemma4 opens safetensors, not gguf")
}

func TestACapabilityThatNothingDeclaresIsRefused(t *testing.T) {
	in := input(t, families(t))
	in.Given = &family.Profile{
		ID: "mine", Graph: "qwen3.5", Loader: "safetensors", Loop: family.Autoregressive, Fidelity: family.L3Measured, Specialization: family.Dedicated,
		Requires: []string{"safetensors", "autoregressive", "qwen3.5-graph", "recurrent-state", "time-travel"},
	}
	_, err := Resolve(in)
	require.Equal(t, contract.UnsupportedModelLoad, contract.KindOf(err))
	require.Equal(t, 3, contract.KindOf(err).ExitCode())
	require.EqualError(t, err, `mine: needs the capability "time-travel", which nothing here declares`)
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const mine = `{id: mine, artifact: "` + qwenArtifact + `", config: "` + qwenConfig + `", graph: qwen3.5, loader: safetensors, loop: autoregressive, fidelity: l3-measured, specialization: artifact}`

func TestAGivenProfileOutranksTheKnownOneAndIsHeldToTheModel(t *testing.T) {
	in := input(t, families(t))
	var err error
	in.Given, err = Load(write(t, mine))
	require.NoError(t, err)
	r, err := Resolve(in)
	require.NoError(t, err)
	require.Equal(t, "mine", r.Profile.Id)
	require.True(t, r.Profile.FromCaller)
	require.NoError(t, family.AssertProfile(r.Profile, in.Record))
	for mention, edit := range map[string]func(*Input){
		"is of the artifact " + qwenArtifact + "; what this one is cannot be told": func(i *Input) { i.ArtifactFingerprint = "" },
		"is of the artifact " + qwenArtifact + ", this one is hf:o/n@1":            func(i *Input) { i.ArtifactFingerprint = "hf:o/n@1" },
		"declares config": func(i *Input) { i.ConfigFingerprint = "x" },
		"declares loader": func(i *Input) { i.Format = artifact.GGUF },
	} {
		other := in
		edit(&other)
		_, err := Resolve(other)
		require.Equal(t, contract.UnsupportedModelLoad, contract.KindOf(err), mention)
		require.Equal(t, 3, contract.KindOf(err).ExitCode())
		require.ErrorContains(t, err, mention)
	}
	in.Given, err = Load(write(t, `{id: ours, graph: qwen3.5, loader: safetensors, loop: autoregressive, fidelity: l3-measured, specialization: dedicated}`))
	require.NoError(t, err)
	r, err = Resolve(in)
	require.NoError(t, err)
	require.Equal(t, "ours", r.Profile.Id)
	require.NoError(t, family.AssertProfile(r.Profile, in.Record))
}

func TestAProfileFileIsRefusedByName(t *testing.T) {
	_, err := Load("/nowhere/p.yaml")
	require.Equal(t, contract.NotFound, contract.KindOf(err))
	for text, mention := range map[string]string{
		strings.Repeat("#", maxFile+1): "is larger than 1048576 bytes",
		"":                             "is empty", "{": "not a profile", strings.Replace(mine, "id: mine", `id: ""`, 1): `id ""`,
		strings.Replace(mine, `config: "`+qwenConfig+`", `, "", 1): "both fingerprints or neither",
	} {
		path := write(t, text)
		_, err := Load(path)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), text)
		require.Equal(t, 2, contract.KindOf(err).ExitCode())
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, mention)
	}
}

const implementations = `{schema: 1, name: more, version: 1.0.0, contract: [1], implementations: [
	{id: fast, graph: qwen3.5, loader: safetensors, loop: autoregressive},
	{id: one, graph: qwen3.5, loader: safetensors, loop: autoregressive, artifact: "hf:o/n@1"},
	{id: other, graph: qwen3, loader: safetensors, loop: autoregressive},
	{id: streamed, graph: glm5.2, loader: colibri, loop: autoregressive}]}`

func TestAnImplementationIsRefusedBeforeWeightsAreOpened(t *testing.T) {
	l := families(t, implementations)
	in := input(t, l)
	in.Implementation = "fast"
	r, err := Resolve(in)
	require.NoError(t, err)
	require.Equal(t, "more", r.Implementation.Plugin)
	glm, _ := l.ByGraph("glm5.2")
	for name, c := range map[string]struct {
		edit    func(*Input)
		mention string
	}{
		"missing":          {func(i *Input) { i.Implementation = "none" }, "implementation none is not registered by any plugin; refusing to fall back"},
		"another graph":    {func(i *Input) { i.Implementation = "other" }, "does not fit: it is of graph qwen3, the model's is qwen3.5; refusing to fall back"},
		"another artifact": {func(i *Input) { i.Implementation = "one" }, "does not fit: it is of the artifact hf:o/n@1"},
		"streamed": {func(i *Input) {
			i.Record, i.Format, i.ConfigFingerprint, i.ArtifactFingerprint, i.Implementation = glm.Record, artifact.Colibri, "8b49d0941e18f1b9", glmArtifact, "streamed"
		}, "implementation streamed cannot stand in for a streamed graph; refusing to fall back"},
	} {
		other := in
		c.edit(&other)
		_, err := Resolve(other)
		require.Equal(t, contract.UnsupportedModelLoad, contract.KindOf(err), name)
		require.Equal(t, 3, contract.KindOf(err).ExitCode())
		require.ErrorContains(t, err, c.mention, name)
	}
}

func TestAProfileNamesItsImplementation(t *testing.T) {
	l := families(t, implementations, `{schema: 1, name: also, version: 1.0.0, contract: [1], profiles: [
		{id: with, artifact: "hf:o/n@1", config: c, graph: qwen3.5, loader: safetensors, loop: autoregressive, fidelity: l3-measured, specialization: artifact, implementation: one},
		{id: without, artifact: "hf:o/n@2", config: c, graph: qwen3.5, loader: safetensors, loop: autoregressive, fidelity: l3-measured, specialization: artifact, implementation: none}]}`)
	in := input(t, l)
	in.ConfigFingerprint, in.ArtifactFingerprint = "c", "hf:o/n@1"
	r, err := Resolve(in)
	require.NoError(t, err)
	require.Equal(t, "with", r.Profile.Id)
	require.Equal(t, "one", r.Implementation.ID)
	in.ArtifactFingerprint = "hf:o/n@2"
	_, err = Resolve(in)
	require.Equal(t, contract.UnsupportedModelLoad, contract.KindOf(err))
	require.Equal(t, 3, contract.KindOf(err).ExitCode())
	require.ErrorContains(t, err, "without: implementation none is not registered")
}
