package profile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/family"
)

func layers(n int, at func(i int) string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = at(i)
	}
	return out
}

// The goldens are constants of the system that defined the fingerprint (reference/behaviour.md 2.2).
func TestConfigFingerprintEqualsThePublishedConstants(t *testing.T) {
	every := func(n int, yes, no string) func(int) string {
		return func(i int) string {
			if (i+1)%n == 0 {
				return yes
			}
			return no
		}
	}
	var kv []map[string]int
	for i := range 48 {
		bits := 4
		if slices.Contains([]int{3, 6, 7, 8, 10, 12}, i) {
			bits = 8
		}
		kv = append(kv, map[string]int{"layer_idx": i, "bits": bits, "group_size": 64})
	}
	tests := []struct {
		name   string
		config map[string]any
		kv     any
		want   string
	}{
		{"GLM-5.2", map[string]any{
			"layer_types": layers(78, func(int) string { return "full_attention" }), "hidden_size": 6144, "head_dim": 256,
			"num_attention_heads": 64, "num_key_value_heads": 64, "enable_moe_block": true, "num_experts": 256, "top_k_experts": 8,
		}, nil, "8b49d0941e18f1b9"},
		{"Qwen3.8-27B", map[string]any{
			"layer_types": layers(64, every(4, "full_attention", "linear_attention")), "hidden_size": 5120, "head_dim": 256,
			"num_attention_heads": 24, "num_key_value_heads": 4,
		}, nil, "50117975cb405944"},
		{"Gemma 4 12B OptiQ", map[string]any{
			"layer_types": layers(48, every(6, "full_attention", "sliding_attention")), "hidden_size": 3840, "head_dim": 256,
			"global_head_dim": 512, "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 1,
			"attention_k_eq_v": true, "num_kv_shared_layers": 0, "num_experts": 99, "top_k_experts": 9,
			"hidden_size_per_layer_input": 0, "sliding_window": 1024, "final_logit_softcapping": 30.0,
		}, kv, "9f812d2eb461fcbe"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data, err := json.Marshal(tt.config)
			require.NoError(t, err)
			config, err := artifact.ParseConfig("config.json", data)
			require.NoError(t, err)
			got, err := ConfigFingerprint(config, withKV(t, tt.kv))
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

// withKV is an artifact with a kv_config.json, or none.
func withKV(t *testing.T, kv any) *artifact.Artifact {
	t.Helper()
	if kv == nil {
		return nil
	}
	dir := t.TempDir()
	data, err := json.Marshal(kv)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, kvConfigFile), data, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type":"x"}`), 0o600))
	require.NoError(t, artifact.WriteSafetensors(filepath.Join(dir, "model.safetensors"), []artifact.NewTensor{}, nil))
	a, err := artifact.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func TestArtifactFingerprintComesFromAnImmutableRevisionOnly(t *testing.T) {
	rev := strings.Repeat("aB", 20)
	for path, want := range map[string]string{
		"/c/models--org--my--name/snapshots/" + rev:      "hf:org/my--name@" + strings.ToLower(rev),
		"/c/models--org--n/snapshots/" + rev + "/x.gguf": "hf:org/n@" + strings.ToLower(rev),
		`C:\c\models--org--n\snapshots\` + rev:           "hf:org/n@" + strings.ToLower(rev),
		"/c/models--org--n/snapshots/main":               "",
		"/c/models--org/snapshots/" + rev:                "",
		"/c/org/n":                                       "",
		"/c/models--org--n/snapshots/" + rev + "0000z":   "",
	} {
		require.Equal(t, want, ArtifactFingerprint(path), path)
	}
}

func record() *family.Record {
	return &family.Record{
		Graph: "g", Loaders: []string{"safetensors", "gguf"}, Loop: family.Autoregressive, Fidelity: family.L1MLXLM,
		Specialization: family.Dedicated, Profile: "g-dedicated", Capabilities: []string{"g-graph"},
	}
}

var capabilities = []string{"autoregressive", "g-graph", "gguf", "safetensors"}

func TestExactArtifactOutranksTheFamilyAndNeverFallsBack(t *testing.T) {
	exact := Exact{ID: "g-exact", ArtifactFingerprint: "hf:o/n@1", ConfigFingerprint: "c1", Graph: "g", Fidelity: family.L1MLXLM, Loader: artifact.Safetensors, Capabilities: []string{"g-graph"}}
	in := Input{Record: record(), Format: artifact.Safetensors, ConfigFingerprint: "c1", ArtifactFingerprint: "hf:o/n@1", Capabilities: capabilities, Exact: []Exact{exact}}
	p, err := Resolve(in)
	require.NoError(t, err)
	require.Equal(t, "g-exact", p.Id)
	require.True(t, p.ExactArtifact)
	require.Equal(t, "artifact", p.Specialization)

	none := in
	none.ArtifactFingerprint = ""
	p, err = Resolve(none)
	require.NoError(t, err)
	require.Equal(t, "g-dedicated", p.Id)
	require.False(t, p.ExactArtifact)

	for name, edit := range map[string]func(*Input){
		"config": func(i *Input) { i.ConfigFingerprint = "c2" },
		"graph":  func(i *Input) { i.Record = record(); i.Record.Graph = "h" },
		"loader": func(i *Input) { i.Format = artifact.GGUF },
	} {
		other := in
		edit(&other)
		_, err := Resolve(other)
		require.Equal(t, contract.UnsupportedModelLoad, contract.KindOf(err), name)
		require.ErrorContains(t, err, "g-exact")
	}
	in.Exact = append(in.Exact, exact)
	_, err = Resolve(in)
	require.ErrorContains(t, err, "same artifact")
}

func TestFormatPicksTheProfileAndAnUnlistedOneIsRefused(t *testing.T) {
	p, err := Resolve(Input{Record: record(), Format: artifact.GGUF, Capabilities: capabilities})
	require.NoError(t, err)
	require.Equal(t, "g-dedicated-gguf", p.Id)
	require.Equal(t, string(family.L3Measured), p.Fidelity)
	_, err = Resolve(Input{Record: record(), Format: artifact.Colibri, Capabilities: capabilities})
	require.Equal(t, contract.UnsupportedModelLoad, contract.KindOf(err))
	_, err = Resolve(Input{Record: record(), Format: artifact.Safetensors, Capabilities: []string{"safetensors"}})
	require.Equal(t, contract.UnsupportedModelLoad, contract.KindOf(err))
}
