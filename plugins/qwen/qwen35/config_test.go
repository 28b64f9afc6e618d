package qwen35

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// records are the plugin's, by graph.
func records(t testing.TB) map[string]*family.Record {
	data, err := os.ReadFile(manifest)
	require.NoError(t, err)
	m, err := family.ParseManifest(data)
	require.NoError(t, err)
	out := map[string]*family.Record{}
	for _, r := range m.Families {
		out[r.Graph] = r
	}
	return out
}

// A config is untrusted: whatever it holds is read or refused with a Kind, never a panic; what was read can be listed, as the model and as
// its head, in every layout.
func FuzzReadConfig(f *testing.F) {
	for _, c := range append(tiny.Qwen35("qwen35-hf", "qwen35-odd"), tiny.Qwen35MoE("qwen35-moe-hf", "qwen35-moe-32")...) {
		data, err := json.Marshal(c.Config)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"model_type":"qwen3_5","rope_parameters":{"partial_rotary_factor":1e-300},"layer_types":[]}`))
	f.Add([]byte(`{"model_type":"qwen3_5_moe","num_experts":4096,"num_experts_per_tok":4097,"shared_expert_intermediate_size":-1}`))
	f.Add([]byte(`{"model_type":"qwen3_5_moe","num_experts":2,"num_hidden_layers":0,"full_attention_interval":1}`))
	all := records(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, err := artifact.ParseConfig("config.json", data)
		if err != nil {
			return
		}
		for graph, read := range map[string]func(artifact.Config) (Config, error){"qwen3.5": ReadConfig, "qwen3.5-moe": ReadMoEConfig} {
			if !all[graph].Match(raw).OK {
				continue
			}
			parsed, err := all[graph].ParseConfig(raw, artifact.Config{})
			if err != nil {
				requireRefusal(t, err)
				continue
			}
			c, err := read(parsed.Config)
			if err != nil {
				requireRefusal(t, err)
				continue
			}
			if c.Layers > 100 || c.MoE != nil && c.MoE.Experts > 256 {
				continue
			}
			for _, l := range []layout{{}, {shifted: true, experts: fusedExperts}, {experts: singleExperts}, {gguf: true}} {
				require.NotEmpty(t, c.params(l))
				require.NotEmpty(t, c.mtpParams(l))
			}
			require.Len(t, c.Caches(), c.Layers)
		}
	})
}

func requireRefusal(t *testing.T, err error) {
	t.Helper()
	require.Contains(t, []contract.Kind{contract.ArtifactCorrupt, contract.UnsupportedModel}, contract.KindOf(err), "%v", err)
}

// A head's folder is untrusted too: names, shapes and config of its file are understood or refused.
func FuzzReadMTP(f *testing.F) {
	f.Add("mtp.fc.weight", int64(64), int64(128), []byte(`{"text_config":{"hidden_size":64}}`))
	f.Add("fc.weight", int64(1), int64(1)<<40, []byte(`{"mtp_num_hidden_layers":1e300}`))
	f.Add("mtp.layers.0.mlp.experts.gate_up_proj", int64(-1), int64(2), []byte(`{"quantization":{"layers.0.mlp.gate":{"bits":3}}}`))
	dir := f.TempDir()
	path, err := tiny.Qwen35MoE("qwen35-moe-hf")[0].Write(dir)
	require.NoError(f, err)
	target, err := artifact.Open(path)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, target.Close()) })
	parsed, err := records(f)["qwen3.5-moe"].Parse(target)
	require.NoError(f, err)
	c, err := ReadMoEConfig(parsed.Config)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, name string, rows, cols int64, config []byte) {
		if rows < 0 || cols < 0 || rows > 64 || cols > 64 || name == "" {
			rows, cols = 1, 1
		}
		head := t.TempDir()
		tensor := artifact.NewTensor{Name: name, DType: "F32", Shape: []int64{rows, cols}, Data: make([]byte, 4*rows*cols)}
		if artifact.WriteSafetensors(filepath.Join(head, "model.safetensors"), []artifact.NewTensor{tensor}, nil) != nil {
			return
		}
		require.NoError(t, os.WriteFile(filepath.Join(head, "config.json"), config, 0o600))
		a, err := artifact.Open(head)
		if err != nil {
			return
		}
		defer func() { require.NoError(t, a.Close()) }()
		_, err = readMTP(target, a, c, besideMTP)
		require.Error(t, err, "one tensor is no head")
		require.NotEqual(t, contract.Internal, contract.KindOf(err), "%v", err)
	})
}

// Zeros of all norms and a base that nobody wrote talk nonsense without an error.
func TestNonsenseInTheConfigIsRefusedByField(t *testing.T) {
	for _, c := range []struct {
		field string
		value any
	}{
		{"rms_norm_eps", -1},
		{"rms_norm_eps", 0},
		{"rms_norm_eps", 1e18},
		{"rope_parameters", "x"},
		{"rope_parameters", 1},
		{"rope_parameters", map[string]any{"rope_theta": -1e4}},
		{"rope_parameters", map[string]any{"rope_theta": 1e18}},
	} {
		for graph, read := range map[string]func(artifact.Config) (Config, error){"qwen3.5": ReadConfig, "qwen3.5-moe": ReadMoEConfig} {
			checkpoint := append(tiny.Qwen35("qwen35-hf"), tiny.Qwen35MoE("qwen35-moe-hf")...)[map[string]int{"qwen3.5": 0, "qwen3.5-moe": 1}[graph]]
			data, err := json.Marshal(checkpoint.Config)
			require.NoError(t, err)
			var config map[string]any
			require.NoError(t, json.Unmarshal(data, &config))
			inner, nested := config["text_config"].(map[string]any)
			if !nested {
				inner = config
			}
			inner[c.field] = c.value
			data, err = json.Marshal(config)
			require.NoError(t, err)
			raw, err := artifact.ParseConfig("config.json", data)
			require.NoError(t, err)
			parsed, err := records(t)[graph].ParseConfig(raw, artifact.Config{})
			if err == nil {
				_, err = read(parsed.Config)
			}
			require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err), "%s %v: %v", c.field, c.value, err)
		}
	}
}
