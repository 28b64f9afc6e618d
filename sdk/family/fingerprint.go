package family

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/clademl/clade/sdk/contract"
)

// absence is what a key prints when the canonical config lacks it, as the system that defined the fingerprint does.
type absence int

const (
	// vanish: JavaScript's undefined, whose key is not printed.
	vanish absence = iota
	// null: a null, or the NaN that arithmetic on undefined gives.
	null
	// zero and no are defaults of that system's config reader.
	zero
	no
)

// configKeys are the canonical keys hashed, in the order and under the names of the system that defined the fingerprint
// (reference/behaviour.md 2.2). like names the key whose value stands in for a missing one.
var configKeys = []struct {
	js, key string
	absent  absence
	like    string
}{
	{js: "layerTypes", key: "layer_types"},
	{js: "hiddenSize", key: "hidden_size"},
	{js: "headDim", key: "head_dim", absent: null},
	{js: "globalHeadDim", key: "global_head_dim", absent: null, like: "head_dim"},
	{js: "numAttentionHeads", key: "num_attention_heads"},
	{js: "numKeyValueHeads", key: "num_key_value_heads"},
	{js: "numGlobalKeyValueHeads", key: "num_global_key_value_heads", like: "num_key_value_heads"},
	{js: "attentionKEqV", key: "attention_k_eq_v", absent: no},
	{js: "numKvSharedLayers", key: "num_kv_shared_layers", absent: zero},
	{js: "enableMoeBlock", key: "enable_moe_block", absent: no},
	{js: "numExperts", key: "num_experts", absent: zero},
	{js: "topKExperts", key: "top_k_experts", absent: zero},
	{js: "hiddenSizePerLayerInput", key: "hidden_size_per_layer_input", absent: zero},
	{js: "slidingWindow", key: "sliding_window", absent: zero},
	{js: "finalLogitSoftcapping", key: "final_logit_softcapping", absent: null},
}

// digits of SHA-256, in hex, that a fingerprint keeps.
const fingerprintDigits = 16

// ConfigFingerprint identifies a model's geometry and KV config: the first 16 hex digits of SHA-256 over compact JSON as
// JavaScript prints it. A mixture's counts are 0 unless it is on.
func (p Parsed) ConfigFingerprint() (string, error) {
	moe, _, err := p.Bool("enable_moe_block")
	if err != nil {
		return "", err
	}
	var out []byte
	for _, k := range configKeys {
		v, _ := p.Lookup(k.key)
		if v == nil && k.like != "" {
			v, _ = p.Lookup(k.like)
		}
		if !moe && (k.key == "num_experts" || k.key == "top_k_experts") {
			v = int64(0)
		}
		if v == nil {
			switch k.absent {
			case vanish:
				continue
			case zero:
				v = int64(0)
			case no:
				v = false
			case null:
			}
		}
		out = append(appendJS(append(out, ','), k.js), ':')
		out = appendJS(out, v)
	}
	out = append(out, `,"kvQuant":`...)
	if p.KV == nil {
		out = append(out, "null"...)
	} else {
		var layers []string
		for _, l := range p.KV {
			layers = append(layers, `{"layerIdx":`+strconv.FormatInt(l.Layer, 10)+`,"bits":`+strconv.FormatInt(l.Bits, 10)+
				`,"groupSize":`+strconv.FormatInt(l.Group, 10)+`}`)
		}
		out = append(out, "["+strings.Join(layers, ",")+"]"...)
	}
	return digestOf(out), nil
}

// digestOf closes the members, each with its comma before it, and digests the object.
func digestOf(members []byte) string {
	text := append(append([]byte{'{'}, strings.TrimPrefix(string(members), ",")...), '}')
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:fingerprintDigits]
}

// GraphFingerprint is what the keys of the family's graph table are compared with, as the record says: the config
// fingerprint, a digest of the record's fields (keys that the config lacks vanish), or, as ok false, the plugin's own
// answer to Inspect.
func (p Parsed) GraphFingerprint() (text string, ok bool, err error) {
	switch p.Record.Fingerprint {
	case FingerprintPlugin:
		return "", false, nil
	case FingerprintFields:
		var out []byte
		for _, key := range p.Record.FingerprintFields {
			if v, _ := p.Lookup(key); v != nil {
				out = append(appendJS(append(out, ','), key), ':')
				out = appendJS(out, v)
			}
		}
		if len(out) == 0 {
			return "", false, contract.Errorf(contract.ArtifactCorrupt, p.Name(), "has none of %s, which identify a graph of %s",
				strings.Join(p.Record.FingerprintFields, ", "), p.Record.Graph)
		}
		return digestOf(out), true, nil
	}
	text, err = p.ConfigFingerprint()
	return text, true, err
}

// appendJS writes v as JSON.stringify does, but for the order of an object's keys, which a Config does not keep: they are
// sorted.
func appendJS(out []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(out, v)
	case string:
		return appendJSString(out, v)
	case int64:
		return appendJSNumber(out, float64(v))
	case float64:
		return appendJSNumber(out, v)
	case []any:
		out = append(out, '[')
		for i, e := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendJS(out, e)
		}
		return append(out, ']')
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		out = append(out, '{')
		for i, k := range keys {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendJS(append(appendJSString(out, k), ':'), v[k])
		}
		return append(out, '}')
	}
	return append(out, "null"...)
}

// appendJSNumber follows ECMAScript's Number::toString: every number is a double, an integral one has no point, exponents
// begin at 1e21 and 1e-7; what is not finite is null.
func appendJSNumber(out []byte, f float64) []byte {
	abs := math.Abs(f)
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return append(out, "null"...)
	case f == 0: // also -0
		return append(out, '0')
	case abs >= 1e-6 && abs < 1e21:
		return strconv.AppendFloat(out, f, 'f', -1, 64)
	}
	start := len(out)
	out = strconv.AppendFloat(out, f, 'e', -1, 64)
	// Go writes at least two digits of an exponent, JavaScript as many as it takes.
	if n := len(out); n-start >= 4 && out[n-2] == '0' && (out[n-3] == '-' || out[n-3] == '+') {
		out[n-2] = out[n-1]
		out = out[:n-1]
	}
	return out
}

// jsEscapes are the control characters with a name of their own.
var jsEscapes = map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

func appendJSString(out []byte, s string) []byte {
	const digits = "0123456789abcdef"
	out = append(out, '"')
	for _, r := range s {
		switch named, ok := jsEscapes[r]; {
		case ok:
			out = append(out, named...)
		case r < ' ':
			out = append(out, `\u00`...)
			out = append(out, digits[r>>4], digits[r&15])
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return append(out, '"')
}
