package artifact

import (
	"fmt"

	"github.com/clademl/clade/sdk/contract"
)

// Files beside a config that change what the model is.
const (
	// KVConfigFile assigns a quantization of the KV cache to layers.
	KVConfigFile = "kv_config.json"
	// VisionSidecarFile holds a vision tower apart from the text weights.
	VisionSidecarFile = "optiq_vision.safetensors"
)

// KVLayer is one entry of kv_config.json.
type KVLayer struct{ Layer, Bits, Group int64 }

// VisionSidecar says whether a vision tower lies beside the weights in a file of its own.
func (a *Artifact) VisionSidecar() bool { return a.HasFile(VisionSidecarFile) }

// ReadConfig reads the JSON object in a file of folder dir, such as an adapter's config.
func ReadConfig(dir, name string) (Config, error) {
	data, err := readSmall(dir, name, configLimit)
	if err != nil {
		return Config{}, err
	}
	return ParseConfig(name, data)
}

// KVConfig reads kv_config.json, in the file's order; nil when there is none. The file is a list of
// {layer_idx, bits, group_size}; anything else is ArtifactCorrupt naming the entry.
func (a *Artifact) KVConfig() ([]KVLayer, error) {
	if !a.HasFile(KVConfigFile) {
		return nil, nil
	}
	data, err := readSmall(a.Path, KVConfigFile, configLimit)
	if err != nil {
		return nil, err
	}
	return ParseKVConfig(KVConfigFile, data)
}

// ParseKVConfig reads the text of a kv_config.json. name is the file that errors speak about.
func ParseKVConfig(name string, data []byte) ([]KVLayer, error) {
	r := &jsonReader{buf: data}
	v, err := r.value()
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return nil, corrupt(name, "", "not valid JSON: %w", err)
	}
	list, ok := v.([]any)
	if !ok {
		return nil, corrupt(name, "", "holds %s where a list of {layer_idx, bits, group_size} belongs", kindOf(v))
	}
	out := make([]KVLayer, 0, len(list))
	seen := map[int64]bool{}
	for i, e := range list {
		l, err := kvLayer(name, i, e)
		if err != nil {
			return nil, err
		}
		if seen[l.Layer] {
			return nil, corrupt(name, fmt.Sprintf("[%d].layer_idx", i), "layer %d has two entries", l.Layer)
		}
		seen[l.Layer] = true
		out = append(out, l)
	}
	return out, nil
}

func kvLayer(name string, i int, v any) (KVLayer, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return KVLayer{}, corrupt(name, fmt.Sprintf("[%d]", i), "is %s, want an object", kindOf(v))
	}
	var l KVLayer
	for _, f := range []struct {
		key         string
		to          *int64
		least, most int64
	}{{"layer_idx", &l.Layer, 0, 4095}, {"bits", &l.Bits, 1, 16}, {"group_size", &l.Group, 1, 4096}} {
		n, ok := m[f.key].(int64)
		if !ok || n < f.least || n > f.most {
			return KVLayer{}, contract.Errorf(contract.ArtifactCorrupt, fmt.Sprintf("%s: [%d].%s", name, i, f.key),
				"is %s, want an integer from %d to %d", kindOf(m[f.key]), f.least, f.most)
		}
		*f.to = n
	}
	return l, nil
}
