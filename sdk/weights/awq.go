package weights

import (
	"fmt"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/weights/quant"
)

// awqCodec is a matrix in AutoAWQ's layout. It is read whole, because its rows are the columns of what is stored, and is MLX's affine triple
// from then on.
type awqCodec struct {
	affineCodec
	awq quant.AWQ
}

func (c awqCodec) held() string   { return "MLX's triples of the same codes" }
func (c awqCodec) String() string { return fmt.Sprintf("AWQ 4-bit in groups of %d", c.awq.Group) }

// readMethod reads the block of another tool, as far as mlx-lm repacks it.
func readMethod(c artifact.Config, field, method string, block map[string]any) (Quantization, error) {
	refused := func(key, format string, args ...any) (Quantization, error) {
		return Quantization{}, contract.Errorf(contract.UnsupportedModel, c.Name()+": "+field+"."+key, "of method "+method+": "+format, args...).
			WithNext("use a checkpoint quantized by mlx-lm, or an unquantized one")
	}
	switch method {
	case "awq", "gptq":
	case "mxfp4", "mxfp8": // in MLX's own tensors: their shapes say what they are
		return Quantization{}, nil
	case "compressed-tensors":
		switch format, _ := block["format"].(string); format {
		case "nvfp4-pack-quantized", "mxfp4-pack-quantized", "pack-quantized":
			return Quantization{}, nil
		}
		return refused("format", "%v is not packed as MLX packs", block["format"])
	default:
		return Quantization{}, unsupportedMode(field+".quant_method", fmt.Sprintf("the method %q", method))
	}
	if bits, ok := block["bits"]; ok && bits != int64(4) {
		return refused("bits", "%v bits are not repacked, only 4 are", bits)
	}
	if size, ok := block["group_size"].(int64); block["group_size"] != nil && (!ok || !(quant.Affine{Bits: 4, Group: int(size)}).Valid()) {
		return refused("group_size", "groups of %v are not MLX's, which are of 32, 64 or 128", block["group_size"])
	}
	for key, takes := range map[string]any{"desc_act": false, "version": "gemm"} {
		if v := block[key]; v != nil && v != takes && !(key == "version" && v == "GEMM") {
			return refused(key, "%v is not repacked, only %v is", v, takes)
		}
	}
	return Quantization{Repacked: true}, nil
}

// hasQWeights reports whether any matrix lies in AutoAWQ's layout.
func (m *matcher) hasQWeights() bool {
	for name := range m.stored {
		if strings.HasSuffix(name, ".qweight") {
			return true
		}
	}
	return false
}

// awq is what AutoAWQ wrote: codes, scales and, for asymmetric ones, zeros, transposed.
func (m *matcher) awq(p Param, path string) (Source, error) {
	codes, _ := m.take(path + ".qweight")
	scales, hasScales := m.take(path + ".scales")
	zeros, hasZeros := m.take(path + ".qzeros")
	if order, ok := m.stored[path+".g_idx"]; ok {
		return Source{}, contract.Errorf(contract.UnsupportedModel, order.File+": "+order.Name, "columns in an order of their own (desc_act) are not repacked").
			WithNext("quantize the model again without desc_act, or with mlx-lm")
	}
	if !hasScales {
		return Source{}, corrupt(codes, "%s.scales is missing", path)
	}
	float, isFloat := floatCodecOf(scales.DType)
	word := func(t artifact.Tensor) bool { return t.DType == artifact.I32 || t.DType == artifact.U32 }
	if len(p.Shape) != 2 || len(codes.Shape) != 2 || len(scales.Shape) != 2 {
		return Source{}, corrupt(codes, "a quantized tensor has shape %v and scales %v, the config makes it %v", codes.Shape, scales.Shape, p.Shape)
	}
	out, in, groups := int64(p.Shape[0]), int64(p.Shape[1]), scales.Shape[0]
	switch {
	case !word(codes) || hasZeros && !word(zeros):
		return Source{}, corrupt(codes, "packed codes are %s, not I32", codes.DType)
	case !isFloat:
		return Source{}, corrupt(scales, "scales are %s, not floats", scales.DType)
	case codes.Shape[0]*8 == in && codes.Shape[1] == out:
		return Source{}, contract.Errorf(contract.UnsupportedModel, codes.File+": "+codes.Name, "packed along its input, as GPTQ's tools do: only AutoAWQ's layout is repacked").
			WithNext("quantize the model with mlx-lm or AutoAWQ")
	case out%8 != 0 || codes.Shape[0] != in || codes.Shape[1]*8 != out || scales.Shape[1] != out || groups == 0 || in%groups != 0:
		return Source{}, corrupt(codes, "packed %v with scales %v cannot hold a matrix of %v", codes.Shape, scales.Shape, p.Shape)
	case hasZeros && (len(zeros.Shape) != 2 || zeros.Shape[0] != groups || zeros.Shape[1]*8 != out):
		return Source{}, corrupt(zeros, "zeros %v beside scales %v", zeros.Shape, scales.Shape)
	}
	shape := quant.Affine{Bits: 4, Group: int(in / groups)}
	if !shape.Valid() {
		return Source{}, corrupt(scales, "groups of %d are not MLX's, which are of 32, 64 or 128", shape.Group)
	}
	src := Source{
		Param: p, reads: []artifact.Tensor{codes, scales},
		codec: awqCodec{affineCodec{shape, float}, quant.AWQ{In: int(in), Out: int(out), Group: shape.Group, Scale: float.float}},
	}
	if hasZeros {
		src.reads = append(src.reads, zeros)
	}
	return src, nil
}

// repacked is the whole triple of a source in AutoAWQ's layout.
func (l *loader) repacked(src Source, c awqCodec) (out [parts][]byte, err error) {
	stored := [parts][]byte{}
	for i, t := range src.reads {
		stored[i] = make([]byte, t.Bytes)
		if err := l.read(t, stored[i], 0); err != nil {
			return out, err
		}
	}
	for i, n := range c.rowBytes(c.awq.In) {
		out[i] = make([]byte, n*c.awq.Out)
	}
	return out, eachRow(c.awq.Out/8, func(w int, _ *scratch) error {
		c.awq.Codes(out[0], stored[0], w)
		c.awq.Scales(out[1], out[2], stored[1], stored[2], w)
		return nil
	})
}

// extraBytes is what loading the source holds beside pieces.
func (src Source) extraBytes() int64 {
	c, ok := src.codec.(awqCodec)
	if !ok {
		return 0
	}
	n := int64(0)
	for i, bytes := range c.rowBytes(c.awq.In) {
		n += int64(bytes) * int64(c.awq.Out)
		if i < len(src.reads) {
			n += src.reads[i].Bytes
		}
	}
	return n
}
