package profile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

// kvConfigFile assigns KV bits to layers; it is part of a model's identity.
const kvConfigFile = "kv_config.json"

// configKeys are the canonical keys hashed, in the order and under the names of the system that defined the fingerprint.
// A missing number reads as its absent value.
var configKeys = []struct {
	js, key string
	absent  any
}{
	{"layerTypes", "layer_types", nil},
	{"hiddenSize", "hidden_size", nil},
	{"headDim", "head_dim", nil},
	{"globalHeadDim", "global_head_dim", "head_dim"},
	{"numAttentionHeads", "num_attention_heads", nil},
	{"numKeyValueHeads", "num_key_value_heads", nil},
	{"numGlobalKeyValueHeads", "num_global_key_value_heads", "num_key_value_heads"},
	{"attentionKEqV", "attention_k_eq_v", false},
	{"numKvSharedLayers", "num_kv_shared_layers", int64(0)},
	{"enableMoeBlock", "enable_moe_block", false},
	{"numExperts", "num_experts", int64(0)},
	{"topKExperts", "top_k_experts", int64(0)},
	{"hiddenSizePerLayerInput", "hidden_size_per_layer_input", int64(0)},
	{"slidingWindow", "sliding_window", int64(0)},
	{"finalLogitSoftcapping", "final_logit_softcapping", nil},
}

// ConfigFingerprint is the first 16 hex digits of SHA-256 over compact JSON of a model's geometry, as JavaScript prints
// it: a missing number without a rule is null, an integral float has no ".0", a mixture's counts are 0 unless it is on.
// config is the canonical config of the family's record; a may hold a kv_config.json.
func ConfigFingerprint(config artifact.Config, a *artifact.Artifact) (string, error) {
	moe, _, err := config.Bool("enable_moe_block")
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for _, k := range configKeys {
		v, ok := config.Lookup(k.key)
		if !ok || v == nil {
			v = k.absent
			if other, isKey := v.(string); isKey {
				v, _ = config.Lookup(other)
			}
		}
		if !moe && (k.key == "num_experts" || k.key == "top_k_experts") {
			v = int64(0)
		}
		text, err := jsJSON(v)
		if err != nil {
			return "", contract.Errorf(contract.ArtifactCorrupt, config.Name()+": "+k.key, "%w", err)
		}
		b.WriteString(strconv.Quote(k.js) + ":" + text + ",")
	}
	kv, err := kvQuant(a)
	if err != nil {
		return "", err
	}
	b.WriteString(`"kvQuant":` + kv + `}`)
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:])[:16], nil
}

// jsJSON prints v as JSON.stringify does.
func jsJSON(v any) (string, error) {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return "null", nil
		}
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(int64(v), 10), nil
		}
	case []any:
		parts := make([]string, 0, len(v))
		for _, item := range v {
			text, err := jsJSON(item)
			if err != nil {
				return "", err
			}
			parts = append(parts, text)
		}
		return "[" + strings.Join(parts, ",") + "]", nil
	}
	data, err := json.Marshal(v)
	return string(data), err
}

// kvQuant is kv_config.json as the fingerprint sees it, in file order; null when there is none.
func kvQuant(a *artifact.Artifact) (string, error) {
	if a == nil || !a.HasFile(kvConfigFile) {
		return "null", nil
	}
	data, err := a.File(kvConfigFile)
	if err != nil {
		return "", err
	}
	var layers []struct {
		LayerIdx  int64 `json:"layer_idx"`
		Bits      int64 `json:"bits"`
		GroupSize int64 `json:"group_size"`
	}
	if err := json.Unmarshal(data, &layers); err != nil {
		return "", contract.Errorf(contract.ArtifactCorrupt, filepath.Join(a.Path, kvConfigFile), "not a list of {layer_idx, bits, group_size}: %w", err)
	}
	parts := make([]string, 0, len(layers))
	for _, l := range layers {
		parts = append(parts, `{"layerIdx":`+strconv.FormatInt(l.LayerIdx, 10)+`,"bits":`+strconv.FormatInt(l.Bits, 10)+`,"groupSize":`+strconv.FormatInt(l.GroupSize, 10)+`}`)
	}
	return "[" + strings.Join(parts, ",") + "]", nil
}

// snapshot is models--ORG--NAME/snapshots/REV anywhere in a path; the first "--" splits organisation and name.
var snapshot = regexp.MustCompile(`(?:^|/)models--(.+?)--([^/]+)/snapshots/([0-9a-fA-F]{40,64})(?:/|$)`)

// ArtifactFingerprint is hf:ORG/NAME@rev for a path in a Hugging Face cache at an immutable revision, else empty.
func ArtifactFingerprint(path string) string {
	m := snapshot.FindStringSubmatch(strings.ReplaceAll(path, `\`, "/"))
	if m == nil || strings.Contains(m[1], "/") {
		return ""
	}
	return "hf:" + m[1] + "/" + m[2] + "@" + strings.ToLower(m[3])
}
