package tiny

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/weights/quant"
)

// stored is a tensor as bytes.
type stored struct {
	name  string
	dtype string
	shape []int
	data  []byte
}

// safetensors stores every tensor in one float dtype.
func safetensors(dtype string) func(Checkpoint, string) error {
	return func(c Checkpoint, dir string) error {
		var tensors []stored
		for _, t := range c.Tensors {
			tensors = append(tensors, stored{t.Name, dtype, t.Shape, encode(dtype, t.Values)})
		}
		return writeSafetensors(c, dir, tensors)
	}
}

// quantizedStore stores matrices as the config's quantization block says for each path, and the rest as float32.
func quantizedStore(c Checkpoint, dir string) error { return quantizedAs(c, dir, false) }

// quantizedGlobal gives each matrix of mode nvfp4 a global scale.
func quantizedGlobal(c Checkpoint, dir string) error { return quantizedAs(c, dir, true) }

func quantizedAs(c Checkpoint, dir string, global bool) error {
	block := c.Config["quantization"].(map[string]any)
	var tensors []stored
	for _, t := range c.Tensors {
		path, isMatrix := strings.CutSuffix(t.Name, ".weight")
		entry := block
		if own, listed := block[path]; listed {
			entry, _ = own.(map[string]any) // false leaves nil: dense
		}
		matrix := len(t.Shape) == 2 || strings.Contains(path, "switch_mlp.") // a convolution is none
		if !isMatrix || !matrix || entry == nil {
			tensors = append(tensors, stored{t.Name, "F32", t.Shape, encode("F32", t.Values)})
			continue
		}
		if entry["mode"] == "trellis" {
			tensors = append(tensors, trellisPair(path, t, block, entry)...)
			continue
		}
		a := quant.Affine{Bits: entry["bits"].(int), Group: entry["group_size"].(int)}
		if mode, _ := entry["mode"].(string); mode != "" && mode != "affine" {
			tensors = append(tensors, floatPair(path, t, mode, global)...)
			continue
		}
		tensors = append(tensors, affineTriple(path, t, a)...)
	}
	return writeSafetensors(c, dir, tensors)
}

func affineTriple(path string, t Tensor, a quant.Affine) []stored {
	last := len(t.Shape) - 1
	cols := t.Shape[last]
	rows := len(t.Values) / cols
	var packed []byte
	var scales, biases []float32
	for r := range rows {
		p, s, b := a.Quantize(t.Values[r*cols : (r+1)*cols])
		packed, scales, biases = append(packed, p...), append(scales, s...), append(biases, b...)
	}
	shaped := func(n int) []int { return append(slices.Clone(t.Shape[:last]), n) }
	groups := shaped(cols / a.Group)
	return []stored{
		{path + ".weight", "U32", shaped(cols * a.Bits / 32), packed},
		{path + ".scales", "F32", groups, encode("F32", scales)},
		{path + ".biases", "F32", groups, encode("F32", biases)},
	}
}

func writeSafetensors(c Checkpoint, dir string, tensors []stored) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := writeConfig(dir, c.Config); err != nil {
		return err
	}
	header := map[string]any{"__metadata__": map[string]string{"format": cmp.Or(c.Format, "mlx")}}
	var payload []byte
	for _, t := range tensors {
		begin := len(payload)
		payload = append(payload, t.data...)
		header[t.name] = map[string]any{"dtype": t.dtype, "shape": t.shape, "data_offsets": []int{begin, len(payload)}}
	}
	head, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(head)%8 != 0 {
		head = append(head, ' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	out = append(append(out, head...), payload...)
	return os.WriteFile(filepath.Join(dir, "model.safetensors"), out, 0o644)
}

// encode stores values little-endian as F32, F16 or BF16.
func encode(dtype string, values []float32) []byte {
	var out []byte
	for _, v := range values {
		switch dtype {
		case "F32":
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		case "F16":
			out = binary.LittleEndian.AppendUint16(out, quant.ToF16(v))
		case "BF16":
			out = binary.LittleEndian.AppendUint16(out, quant.ToBF16(v))
		}
	}
	return out
}
