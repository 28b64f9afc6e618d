package weights

import (
	"fmt"
	"maps"
	"slices"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/weights/quant"
)

// Module is one path's entry in a quantization block; Bits 0 says that the path is stored dense.
type Module struct {
	quant.Affine
	Mode string
}

// Quantization is config.json's quantization block. The shapes in the file decide what a tensor is; the block decides which
// mode it is in and, for listed paths, what the shapes must be.
type Quantization struct {
	Mode    string
	Modules map[string]Module
}

// ReadQuantization reads the block `quantization`, or `quantization_config` where that has MLX's form. Methods of other
// tools are refused by name.
func ReadQuantization(c artifact.Config) (Quantization, error) {
	block, field := blockOf(c)
	if block == nil {
		return Quantization{}, nil
	}
	if method, ok := block["quant_method"].(string); ok {
		return Quantization{}, unsupportedMode(field, fmt.Sprintf("the method %q", method))
	}
	base, err := readModule(c, field, block, Module{Mode: "affine"})
	if err != nil {
		return Quantization{}, err
	}
	q := Quantization{Mode: base.Mode, Modules: map[string]Module{}}
	for _, path := range slices.Sorted(maps.Keys(block)) {
		switch entry := block[path].(type) {
		case map[string]any:
			if q.Modules[path], err = readModule(c, field+"."+path, entry, base); err != nil {
				return Quantization{}, err
			}
		case bool:
			if !entry {
				q.Modules[path] = Module{Mode: base.Mode}
			}
		}
	}
	return q, nil
}

func blockOf(c artifact.Config) (map[string]any, string) {
	for _, field := range []string{"quantization", "quantization_config"} {
		if block, ok := c.Map()[field].(map[string]any); ok {
			return block, field
		}
	}
	return nil, ""
}

func readModule(c artifact.Config, field string, entry map[string]any, defaults Module) (Module, error) {
	m := defaults
	for key, into := range map[string]*int{"bits": &m.Bits, "group_size": &m.Group} {
		switch v := entry[key].(type) {
		case nil:
		case int64:
			*into = int(v)
		default:
			return m, contract.Errorf(contract.ArtifactCorrupt, c.Name()+": "+field+"."+key, "is not an integer")
		}
	}
	if mode, ok := entry["mode"].(string); ok {
		m.Mode = mode
	}
	if m.Mode == "affine" && !m.Valid() {
		return m, contract.Errorf(contract.ArtifactCorrupt, c.Name()+": "+field, "%d bits in groups of %d is no affine format", m.Bits, m.Group)
	}
	return m, nil
}

// affineOnly refuses a path whose mode this version does not decode.
func (q Quantization) affineOnly(path string) error {
	mode := q.Mode
	if m, listed := q.Modules[path]; listed {
		mode = m.Mode
	}
	if mode == "" || mode == "affine" {
		return nil
	}
	return unsupportedMode(path, fmt.Sprintf("mode %q", mode))
}

func unsupportedMode(subject, what string) *contract.Error {
	return contract.Errorf(contract.UnsupportedModel, subject, "quantized with %s, which this version does not decode", what).
		WithNext("use a checkpoint quantized by mlx-lm in mode affine, or an unquantized one")
}
