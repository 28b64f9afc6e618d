package family

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

const exactProfile = `
id: x-exact
artifact: hf:org/x@0000000000000000000000000000000000000000
config: 50117975cb405944
graph: qwen3
loader: safetensors
loop: autoregressive
fidelity: l1-mlx-lm
specialization: artifact
`

func TestTheTwoKnownArtifactsAreData(t *testing.T) {
	found := map[string]string{}
	for _, m := range firstParty(t) {
		for _, p := range m.Profiles {
			require.True(t, p.Exact())
			require.NoError(t, p.CheckFor(recordOf(t, p.Graph)))
			found[p.ID] = p.Artifact + " " + p.Config + " " + string(p.Fidelity)
		}
	}
	require.Equal(t, map[string]string{
		"qwen3.8-27b-optiq-4bit":       "hf:mlx-community/Qwen3.8-27B-OptiQ-4bit@b04599de95d7a9bfbd7f208d347c0f10d9432a42 50117975cb405944 l1-mlx-lm",
		"glm5.2-colibri-int4-int8-mtp": "hf:mateogrgic/GLM-5.2-colibri-int4-with-int8-mtp@3cc8db99b1b13fc79325d987ba3c1c430766b3b8 8b49d0941e18f1b9 l3-measured",
	}, found)
}

// Each rule of reference/behaviour.md 2.4 by the edit that breaks it.
func TestProfilesThatContradictThemselvesAreRefused(t *testing.T) {
	p, err := ParseProfile([]byte(exactProfile))
	require.NoError(t, err)
	require.NoError(t, p.CheckFor(recordOf(t, "qwen3")))
	require.Equal(t, []string{"autoregressive", "qwen3-graph", "safetensors"}, p.Capabilities(recordOf(t, "qwen3")))
	for name, c := range map[string]struct{ from, to, mention string }{
		"empty id":                   {"id: x-exact", `id: ""`, `id ""`},
		"one fingerprint":            {"config: 50117975cb405944\n", "", "both fingerprints or neither"},
		"dedicated and exact":        {"specialization: artifact", "specialization: dedicated", "belongs to a profile with fingerprints"},
		"artifact without one":       {"artifact: hf:org/x@0000000000000000000000000000000000000000\nconfig: 50117975cb405944\n", "", "belongs to a profile with fingerprints"},
		"implementation of a family": {"artifact: hf:org/x@0000000000000000000000000000000000000000\nconfig: 50117975cb405944\n", "implementation: i\n", "only a profile of one artifact names one"},
		"unknown fidelity":           {"fidelity: l1-mlx-lm", "fidelity: l9", `fidelity "l9"`},
		"whisper's fidelity":         {"fidelity: l1-mlx-lm", "fidelity: l1-mlx-whisper", "only a graph that transcribes"},
		"another loop":               {"loop: autoregressive", "loop: diffusion", "loop diffusion: qwen3 runs autoregressive"},
		"another loader":             {"loader: safetensors\n", "loader: colibri\n", "loader colibri: qwen3 opens safetensors"},
		"gguf with an oracle":        {"loader: safetensors\n", "loader: gguf\n", "no oracle reads gguf"},
		"another graph":              {"graph: qwen3", "graph: qwen3.5", "graph qwen3.5: the record's is qwen3"},
		"capabilities short":         {"id: x", "requires: [safetensors, autoregressive]\nid: x", "requires: lacks qwen3-graph"},
		"no scheme":                  {"hf:org/x@", "org/x@", "not of the form"},
		"unknown key":                {"id: x", "quality: high\nid: x", "quality"},
		"two documents":              {"\nid:", "\nid: y\n---\nid:", "more than one document"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(exactProfile, c.from, c.to, 1)
			if name == "implementation of a family" {
				text = strings.Replace(text, "specialization: artifact", "specialization: dedicated", 1)
			}
			require.NotEqual(t, exactProfile, text)
			p, err := ParseProfile([]byte(text))
			if err == nil {
				err = p.CheckFor(recordOf(t, "qwen3"))
			}
			require.ErrorContains(t, err, c.mention)
		})
	}
	_, err = ParseProfile(nil)
	require.ErrorContains(t, err, "is empty")
}

func TestManifestListsAreChecked(t *testing.T) {
	const own = "\nprofiles:\n  - {id: p, artifact: 'hf:o/n@1', config: c, graph: example.org/x, loader: safetensors, loop: autoregressive, fidelity: l3-measured, specialization: artifact}\n"
	for name, c := range map[string]struct{ text, mention string }{
		"a profile of no artifact": {strings.Replace(own, "artifact: 'hf:o/n@1', config: c, ", "", 1), "belongs to a profile with fingerprints"},
		"claimed twice":            {own + strings.Replace(strings.TrimPrefix(own, "\nprofiles:\n"), "id: p", "id: q", 1), "claimed twice"},
		"own record disagrees":     {strings.Replace(own, "loader: safetensors", "loader: colibri", 1), "opens safetensors"},
		"implementation":           {"\nimplementations:\n  - {id: i, graph: qwen3, loader: tape, loop: autoregressive}\n", `loader "tape"`},
		"another loader":           {"\nimplementations:\n  - {id: i, graph: qwen3, loader: gguf, also: [tape], loop: autoregressive}\n", `also "tape"`},
		"implementation twice":     {"\nimplementations:\n  - {id: i, graph: qwen3, loader: gguf, loop: autoregressive}\n  - {id: i, graph: qwen3, loader: gguf, loop: autoregressive}\n", "registered twice"},
	} {
		_, err := ParseManifest([]byte(minimal + c.text))
		require.ErrorContains(t, err, c.mention, name)
	}
	m, err := ParseManifest([]byte("{schema: 1, name: x, version: 1.0.0, contract: [1], implementations: [{id: i, graph: qwen3, loader: safetensors, loop: autoregressive}]}"))
	require.NoError(t, err, "a plugin may bring an implementation alone")
	require.Empty(t, m.Families)
	_, err = ParseManifest([]byte("{schema: 1, name: x, version: 1.0.0, contract: [1]}"))
	require.ErrorContains(t, err, "at least one record")
}

func TestAnImplementationFitsItsGraphLoaderLoopAndArtifact(t *testing.T) {
	i := Implementation{ID: "i", Graph: "g", Loader: "safetensors", Loop: Autoregressive, Artifact: "hf:o/n@1"}
	require.NoError(t, i.Fits("g", "safetensors", "autoregressive", "hf:o/n@1"))
	both := Implementation{ID: "i", Graph: "g", Loader: "safetensors", Also: []string{"gguf"}, Loop: Autoregressive}
	require.NoError(t, both.Fits("g", "gguf", "autoregressive", ""))
	for mention, got := range map[string]error{
		"it is of graph g, the model's is h":                        i.Fits("h", "safetensors", "autoregressive", "hf:o/n@1"),
		"it opens safetensors, the model is gguf":                   i.Fits("g", "gguf", "autoregressive", "hf:o/n@1"),
		"it runs the loop autoregressive, the model's is diffusion": i.Fits("g", "safetensors", "diffusion", "hf:o/n@1"),
		"it is of the artifact hf:o/n@1, the model's is not known":  i.Fits("g", "safetensors", "autoregressive", ""),
		"it opens safetensors, colibri, the model is gguf": (&Implementation{
			ID: "i", Graph: "g", Loader: "safetensors", Also: []string{"colibri"}, Loop: Autoregressive,
		}).Fits("g", "gguf", "autoregressive", ""),
	} {
		require.EqualError(t, got, mention)
	}
}

func TestAllNineCellsOfTheLoaderMatrix(t *testing.T) {
	type answers struct{ residence, text, speech, create, implementation string }
	resident := answers{"resident", "", "does not transcribe", "", ""}
	streamed := answers{"streamed", "", "does not transcribe", "opened by their folder", "streamed graph; refusing to fall back"}
	speech := answers{"speech", "does not generate text", "", "does not generate text", "speech graph; refusing to fall back"}
	for loader, loops := range map[string]map[string]answers{
		"safetensors": {"autoregressive": resident, "diffusion": resident, "encoder-decoder": speech},
		"gguf":        {"autoregressive": resident, "diffusion": resident, "encoder-decoder": speech},
		"colibri":     {"autoregressive": streamed, "diffusion": streamed, "encoder-decoder": speech},
	} {
		for loop, want := range loops {
			cell, err := CellOf("p", loader, loop)
			require.NoError(t, err)
			require.Equal(t, want.residence, string(cell))
			for what, c := range map[string]struct {
				err     error
				mention string
			}{
				"text": {cell.ForText("p"), want.text}, "speech": {cell.ForSpeech("p"), want.speech}, "create": {cell.ForCreate("p"), want.create},
				"implementation": {cell.ForImplementation("p", "i"), want.implementation},
			} {
				if c.mention == "" {
					require.NoError(t, c.err, "%s %s %s", loader, loop, what)
					continue
				}
				require.Equal(t, contract.UnsupportedModelLoad, contract.KindOf(c.err), "%s %s %s", loader, loop, what)
				require.Equal(t, 3, contract.KindOf(c.err).ExitCode())
				require.Equal(t, "unsupported-model-load", contract.KindOf(c.err).String())
				require.ErrorContains(t, c.err, "p: ")
				require.ErrorContains(t, c.err, c.mention)
			}
		}
	}
	for _, bad := range [][2]string{{"safetensors", "rnn"}, {"tape", "autoregressive"}} {
		_, err := CellOf("p", bad[0], bad[1])
		require.Equal(t, contract.UnsupportedModelLoad, contract.KindOf(err))
	}
}

func TestAChatModelAndASpeechModelPointAtEachOther(t *testing.T) {
	require.EqualError(t, Speech.ForText("whisper-dedicated"),
		"whisper-dedicated: a speech model does not generate text; transcribe audio with it: clade transcribe MODEL AUDIO")
	require.EqualError(t, Resident.ForSpeech("qwen3-dedicated"),
		"qwen3-dedicated: a text model does not transcribe; chat with it: clade run MODEL")
}

func TestKVConfigAndSidecarComeWithTheParsedConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("config.json", `{"model_type":"gemma4","text_config":{}}`)
	require.NoError(t, artifact.WriteSafetensors(filepath.Join(dir, "model.safetensors"), nil, nil))
	parse := func() (Parsed, error) {
		a, err := artifact.Open(dir)
		require.NoError(t, err)
		defer func() { _ = a.Close() }()
		return recordOf(t, "gemma4").Parse(a)
	}
	bare, err := parse()
	require.NoError(t, err)
	require.Nil(t, bare.KV)
	require.False(t, bare.VisionSidecar)
	write(artifact.KVConfigFile, `[{"layer_idx":0,"bits":4,"group_size":64}]`)
	write(artifact.VisionSidecarFile, "")
	full, err := parse()
	require.NoError(t, err)
	require.Equal(t, []artifact.KVLayer{{Layer: 0, Bits: 4, Group: 64}}, full.KV)
	require.True(t, full.VisionSidecar)
	require.Equal(t, bare.JSON(), full.JSON(), "what lies beside is no part of the config")
	write(artifact.KVConfigFile, `{}`)
	_, err = parse()
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
}
