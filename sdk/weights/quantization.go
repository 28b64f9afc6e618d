package weights

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/weights/quant"
)

// Module is one path's entry in a quantization block; Bits 0 says that the path is stored dense.
type Module struct {
	quant.Affine
	Mode        string
	State, Axis int // of mode trellis, whose block is Group
}

func (m Module) String() string {
	if m.Bits == 0 {
		return "dense"
	}
	if m.Mode == trellisMode {
		return fmt.Sprintf("trellis, %d bits in blocks of %d along axis %d, states of %d bits", m.Bits, m.Group, m.Axis, m.State)
	}
	return fmt.Sprintf("%s, %d bits in groups of %d", m.Mode, m.Bits, m.Group)
}

const affineMode = "affine"

// defaultsOf is what mx.quantize of MLX 0.32 takes for a mode when bits and group are not given; false for no mode of MLX.
func defaultsOf(mode string) (Module, bool) {
	if mode == affineMode {
		return Module{Affine: quant.Affine{Bits: 4, Group: 64}, Mode: mode}, true
	}
	f, ok := quant.FloatBlockMode(mode)
	return Module{Affine: quant.Affine{Bits: f.Bits, Group: f.Group}, Mode: mode}, ok
}

// Quantization is config.json's quantization block. The shapes and types in the file decide what a tensor is; for listed paths
// the block says what they must be. Of a trellis the file does not tell all: there the block decides.
type Quantization struct {
	Modules map[string]Module
	// Trellis is what matrices without an entry are where the block is of mode trellis; else nil.
	Trellis *Module
	// Repacked is true where matrices may lie in AutoAWQ's layout.
	Repacked bool
}

// ReadQuantization reads the block `quantization`, or `quantization_config` where that has MLX's form or is of a tool whose files mlx-lm
// repacks. Other methods are refused by name.
func ReadQuantization(c artifact.Config) (Quantization, error) {
	block, field, err := blockOf(c)
	if block == nil {
		return Quantization{}, err
	}
	if method, ok := block["quant_method"].(string); ok {
		return readMethod(c, field, method, block)
	}
	r := moduleReader{c.Name(), block}
	all, err := r.module(field, block)
	if err != nil {
		return Quantization{}, err
	}
	q := Quantization{Modules: map[string]Module{}}
	if all.Mode == trellisMode {
		q.Trellis = &all
	}
	for _, path := range slices.Sorted(maps.Keys(block)) {
		switch entry := block[path].(type) {
		case map[string]any:
			m, err := r.module(field+"."+path, entry)
			if err != nil {
				return Quantization{}, err
			}
			q.Modules[path] = m
		case bool:
			q.Modules[path] = all // what the block says of all
			if !entry {
				q.Modules[path] = Module{}
			}
		default:
			if strings.Contains(path, ".") {
				return Quantization{}, contract.Errorf(contract.ArtifactCorrupt, c.Name()+": "+field+"."+path, "is not an object, true or false")
			}
		}
	}
	return q, nil
}

func blockOf(c artifact.Config) (map[string]any, string, error) {
	for _, field := range []string{"quantization", "quantization_config"} {
		switch block := c.Map()[field].(type) {
		case nil:
		case map[string]any:
			return block, field, nil
		default:
			return nil, "", contract.Errorf(contract.ArtifactCorrupt, c.Name()+": "+field, "is not an object of bits and group_size")
		}
	}
	return nil, "", nil
}

// moduleReader reads the entries of a file's block.
type moduleReader struct {
	name  string // of the file
	block map[string]any
}

// module reads one entry. What it leaves out is MLX's default for its mode, and the mode affine, whatever the block around it
// says: so mlx-lm hands the entry on.
func (r moduleReader) module(field string, entry map[string]any) (Module, error) {
	mode, ok := entry["mode"].(string)
	switch {
	case entry["mode"] == nil:
		mode = affineMode
	case !ok:
		return Module{}, contract.Errorf(contract.ArtifactCorrupt, r.name+": "+field+".mode", "is not a text")
	case mode == trellisMode:
		return r.trellis(field, entry)
	}
	m, known := defaultsOf(mode)
	if !known {
		return m, unsupportedMode(field, fmt.Sprintf("mode %q", mode))
	}
	for key, into := range map[string]*int{"bits": &m.Bits, "group_size": &m.Group} {
		switch v := entry[key].(type) {
		case nil:
		case int64:
			*into = int(v)
		default:
			return m, contract.Errorf(contract.ArtifactCorrupt, r.name+": "+field+"."+key, "is not an integer")
		}
	}
	fits := m.Valid()
	if mode != affineMode {
		f, ok := quant.FloatBlockOf(m.Bits, m.Group)
		fits = ok && f.Mode == mode
	}
	if !fits {
		return m, contract.Errorf(contract.ArtifactCorrupt, r.name+": "+field, "%d bits in groups of %d is no format of mode %s", m.Bits, m.Group, mode)
	}
	return m, nil
}

func unsupportedMode(subject, what string) *contract.Error {
	return contract.Errorf(contract.UnsupportedModel, subject, "quantized with %s, which this version does not decode", what).
		WithNext("use a checkpoint quantized by mlx-lm in mode affine, mxfp4, nvfp4 or mxfp8, one of mode trellis, or an unquantized one")
}
