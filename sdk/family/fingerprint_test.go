package family

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

func every(n int, yes, no string, count int) []string {
	out := make([]string, count)
	for i := range out {
		out[i] = no
		if (i+1)%n == 0 {
			out[i] = yes
		}
	}
	return out
}

// optiqKV is the kv_config.json of the Gemma 4 12B OptiQ checkpoint.
func optiqKV() []artifact.KVLayer {
	var out []artifact.KVLayer
	for i := range int64(48) {
		bits := int64(4)
		if slices.Contains([]int64{3, 6, 7, 8, 10, 12}, i) {
			bits = 8
		}
		out = append(out, artifact.KVLayer{Layer: i, Bits: bits, Group: 64})
	}
	return out
}

// The goldens are constants of the system that defined the fingerprint (reference/behaviour.md 2.2).
func TestConfigFingerprintEqualsThePublishedConstants(t *testing.T) {
	for name, tt := range map[string]struct {
		config map[string]any
		kv     []artifact.KVLayer
		want   string
	}{
		"GLM-5.2": {map[string]any{
			"layer_types": every(1, "full_attention", "", 78), "hidden_size": 6144, "head_dim": 256,
			"num_attention_heads": 64, "num_key_value_heads": 64, "enable_moe_block": true, "num_experts": 256, "top_k_experts": 8,
		}, nil, "8b49d0941e18f1b9"},
		"Qwen3.8-27B": {map[string]any{
			"layer_types": every(4, "full_attention", "linear_attention", 64), "hidden_size": 5120, "head_dim": 256,
			"num_attention_heads": 24, "num_key_value_heads": 4,
		}, nil, "50117975cb405944"},
		"Gemma 4 12B OptiQ": {map[string]any{
			"layer_types": every(6, "full_attention", "sliding_attention", 48), "hidden_size": 3840, "head_dim": 256,
			"global_head_dim": 512, "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 1,
			"attention_k_eq_v": true, "num_kv_shared_layers": 0, "num_experts": 99, "top_k_experts": 9,
			"hidden_size_per_layer_input": 0, "sliding_window": 1024, "final_logit_softcapping": 30.0,
		}, optiqKV(), "9f812d2eb461fcbe"},
	} {
		data, err := json.Marshal(tt.config)
		require.NoError(t, err)
		got, err := Parsed{Config: config(t, string(data)), KV: tt.kv}.ConfigFingerprint()
		require.NoError(t, err)
		require.Equal(t, tt.want, got, name)
	}
}

func TestKVConfigIsPartOfIdentityAndItsOrderToo(t *testing.T) {
	of := func(kv []artifact.KVLayer) string {
		got, err := Parsed{Config: config(t, `{"hidden_size":8}`), KV: kv}.ConfigFingerprint()
		require.NoError(t, err)
		return got
	}
	kv := optiqKV()
	reversed := slices.Clone(kv)
	slices.Reverse(reversed)
	require.Len(t, map[string]bool{of(nil): true, of(kv): true, of(reversed): true, of([]artifact.KVLayer{}): true}, 4)
}

func TestNumbersAndTextPrintAsInJavaScript(t *testing.T) {
	for want, v := range map[string]any{
		"30": 30.0, "0.25": 0.25, "0": math.Copysign(0, -1), "null": math.NaN(), "1e+21": 1e21, "100000000000000000000": 1e20,
		"1e-7": 1e-7, "0.000001": 1e-6, "1.5e-10": 1.5e-10, "-2.5": -2.5, "9007199254740992": int64(9007199254740993),
		"-1.7976931348623157e+308": -math.MaxFloat64, "5e-324": math.SmallestNonzeroFloat64, "1e+100": 1e100,
		`"<a&b>/é"`: "<a&b>/é", `"\u0001\n\"\\"`: "\x01\n\"\\", "\"\u2028\"": "\u2028", "[1,true,null]": []any{int64(1), true, nil},
		`{"a":1,"b":[]}`: map[string]any{"b": []any{}, "a": int64(1)},
	} {
		require.Equal(t, want, string(appendJS(nil, v)))
	}
	require.Equal(t, "null", string(appendJS(nil, math.Inf(-1))))
}

func TestMissingKeysVanishOrPrintNullAsTheyDidThere(t *testing.T) {
	whisper, err := recordOf(t, "whisper").ParseConfig(config(t, `{"model_type":"whisper","n_mels":80,"n_audio_ctx":1500,"n_audio_state":384,
		"n_audio_head":6,"n_audio_layer":4,"n_vocab":51865,"n_text_ctx":448,"n_text_state":384,"n_text_head":6,"n_text_layer":4}`), artifact.Config{})
	require.NoError(t, err)
	got, err := whisper.ConfigFingerprint()
	require.NoError(t, err)
	// hiddenSize and the head counts are undefined there, headDim is their quotient: NaN.
	require.Equal(t, digestOf([]byte(`,"headDim":null,"globalHeadDim":null,"attentionKEqV":false,"numKvSharedLayers":0,"enableMoeBlock":false,`+
		`"numExperts":0,"topKExperts":0,"hiddenSizePerLayerInput":0,"slidingWindow":0,"finalLogitSoftcapping":null,"kvQuant":null`)), got)
}

func TestFingerprintOfFieldsHashesOnlyThose(t *testing.T) {
	r := &Record{Graph: "x", Fingerprint: FingerprintFields, FingerprintFields: []string{"b", "a", "missing"}}
	of := func(text string) string {
		got, ok, err := Parsed{Config: config(t, text), Record: r}.GraphFingerprint()
		require.NoError(t, err)
		require.True(t, ok)
		return got
	}
	require.Equal(t, digestOf([]byte(`,"b":[1,2],"a":0.5`)), of(`{"a":0.5,"b":[1,2],"c":3}`))
	require.Equal(t, of(`{"a":0.5,"b":[1,2],"c":3}`), of(`{"a":0.5,"b":[1,2.0],"c":4}`), "2.0 prints as 2")
	require.NotEqual(t, of(`{"a":0.5}`), of(`{"b":0.5}`))
	_, _, err := Parsed{Config: config(t, `{"c":1}`), Record: r}.GraphFingerprint()
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
	require.ErrorContains(t, err, "has none of b, a, missing")
	_, ok, err := Parsed{Record: &Record{Fingerprint: FingerprintPlugin}}.GraphFingerprint()
	require.NoError(t, err)
	require.False(t, ok, "the plugin says it")
}

// The key belongs to another function, which is not available: nothing here claims to compute it.
func TestTheTrellisKeyIsDataMarkedUnverified(t *testing.T) {
	keys := recordOf(t, "qwen3.5").GraphKeys
	require.Len(t, keys, 1)
	require.Equal(t, "cfa205c8f5af046a", keys[0].Fingerprint)
	require.False(t, keys[0].Verified)
}

// Every key of the canonical config that the fingerprint names is read: another value is another fingerprint.
func TestNoFingerprintKeySurvivesUnread(t *testing.T) {
	base := map[string]any{"enable_moe_block": true}
	for _, k := range configKeys {
		if k.key != "enable_moe_block" {
			base[k.key] = int64(2)
		}
	}
	of := func(tree map[string]any) string {
		got, err := Parsed{Config: artifact.NewConfig("", tree)}.ConfigFingerprint()
		require.NoError(t, err)
		return got
	}
	want := of(base)
	rapid.Check(t, func(rt *rapid.T) {
		k := rapid.SampledFrom(configKeys).Draw(rt, "key")
		tree := map[string]any{}
		for key, v := range base {
			tree[key] = v
		}
		tree[k.key] = rapid.Int64Range(3, 1<<40).Draw(rt, "value")
		if k.key == "enable_moe_block" {
			tree[k.key] = false
		}
		require.NotEqual(rt, want, of(tree), k.key)
		require.Equal(rt, of(tree), of(tree))
	})
	require.Equal(t, 15, len(configKeys))
	require.True(t, strings.HasPrefix(configKeys[0].js, "layerTypes"))
}
