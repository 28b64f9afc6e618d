package dense

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/engine/enginetest"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

// edited is a checkpoint with another config.
func edited(t *testing.T, name string, change func(config map[string]any)) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(tinyPaths[name], "config.json"))
	require.NoError(t, err)
	var config map[string]any
	require.NoError(t, json.Unmarshal(data, &config))
	change(config)
	data, err = json.Marshal(config)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600))
	require.NoError(t, os.Symlink(filepath.Join(tinyPaths[name], "model.safetensors"), filepath.Join(dir, "model.safetensors")))
	return dir
}

func configOf(t *testing.T, path string) Config {
	t.Helper()
	a, err := artifact.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	return readConfig(t, a)
}

// Newer configs keep the base and the scaling of positions in rope_parameters alone. mlx-lm 0.32.2 reads them there for a few types only.
func TestRopeParametersAreReadOfEveryRow(t *testing.T) {
	for _, name := range rowNames() {
		if !strings.HasSuffix(name, "-a") {
			continue // a wrapper has it elsewhere
		}
		t.Run(name, func(t *testing.T) {
			c := configOf(t, edited(t, name, func(config map[string]any) {
				delete(config, "rope_theta")
				delete(config, "rope_scaling")
				config["rope_parameters"] = map[string]any{
					"rope_type": "linear", "factor": 2.5, "rope_theta": 54321.0, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 64,
				}
			}))
			require.InDelta(t, 54321, c.Rope.Base, 0)
			require.Equal(t, nn.RopeLinear, c.Rope.Kind)
			require.InDelta(t, 2.5, c.Rope.Factor, 0)
			require.Contains(t, c.Notes[0], "positions follow rope_parameters of config.json: base 54321, type linear")
		})
	}
}

// Whatever a field of a row's config becomes, the model is refused with a Kind, or its tensors still fit the shapes that the config asks for.
func TestADamagedConfigOfARowIsRefusedOrFits(t *testing.T) {
	damage := []any{nil, -1.0, 0.0, 1e30, "x", []any{}, map[string]any{}, true, 7.0}
	for _, name := range rowNames() {
		var keys []string
		edited(t, name, func(config map[string]any) {
			for key := range config {
				keys = append(keys, key)
			}
		})
		a, err := artifact.Open(tinyPaths[name])
		require.NoError(t, err)
		_, config := enginetest.Parse(t, "../plugin.yaml", a)
		require.NoError(t, a.Close())
		parsed, err := config.MarshalJSON()
		require.NoError(t, err)
		for _, key := range keys {
			for _, value := range damage {
				tree := map[string]any{}
				require.NoError(t, json.Unmarshal(parsed, &tree))
				tree[key] = value
				data, err := json.Marshal(tree)
				require.NoError(t, err)
				requireRefusedOrFits(t, name, key, data)
			}
		}
	}
}

func requireRefusedOrFits(t *testing.T, name, key string, config []byte) {
	t.Helper()
	parsed, err := artifact.ParseConfig("config.json", config)
	require.NoError(t, err)
	known := []contract.Kind{contract.ArtifactCorrupt, contract.UnsupportedModel}
	c, err := ReadConfig(parsed, nil)
	if err == nil {
		a, openErr := artifact.Open(tinyPaths[name])
		require.NoError(t, openErr)
		var set *weights.Set
		set, err = Match(a, &c)
		require.NoError(t, a.Close())
		if err == nil {
			require.Positive(t, set.Elements())
		}
	}
	if err != nil {
		require.Contains(t, known, contract.KindOf(err), "%s: %s: %v", name, key, err)
		require.NotContains(t, err.Error(), "\n")
	}
}
