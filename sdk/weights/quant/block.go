package quant

import (
	"encoding/binary"
	"errors"
)

// Block is one of GGUF's block formats (ggml-common.h of llama.cpp): Values consecutive values of a row in Bytes bytes.
//
// A block is taken apart into whole-number codes and, for each group of them, a float32 scale and perhaps a bias. Both what
// a value is and how the kernels hold it follow from these.
type Block struct {
	Name          string
	Values, Bytes int
	// Codes is the packing: its bits hold every code, and its groups share a scale.
	Codes Affine
	// Scales holds the scales and biases of ordinary files exactly.
	Scales Float
	// Offset is the code of the value zero: value = scale*(code-Offset). Formats with a bias of their own have 0.
	Offset int
	unpack func(codes []byte, scales, biases []float32, src []byte)
	encode func(dst []byte, src []float32)
}

// blocks lists the formats that this version decodes. Codes of formats whose levels are a table (IQ4, MXFP4) are the levels
// themselves, which takes more bits than the file.
var blocks = map[string]Block{
	"Q4_0":   {"Q4_0", 32, 18, Affine{4, 32}, Float16, 8, unpackQ40, encodeQ40},
	"Q4_1":   {"Q4_1", 32, 20, Affine{4, 32}, Float16, 0, unpackQ41, encodeQ41},
	"Q5_0":   {"Q5_0", 32, 22, Affine{5, 32}, Float16, 16, unpackQ50, nil},
	"Q5_1":   {"Q5_1", 32, 24, Affine{5, 32}, Float16, 0, unpackQ51, nil},
	"Q8_0":   {"Q8_0", 32, 34, Affine{8, 32}, Float16, 128, unpackQ80, encodeQ80},
	"Q2_K":   {"Q2_K", 256, 84, Affine{2, 16}, Float32, 0, unpackQ2K, nil},
	"Q3_K":   {"Q3_K", 256, 110, Affine{3, 16}, Float32, 4, unpackQ3K, nil},
	"Q4_K":   {"Q4_K", 256, 144, Affine{4, 32}, Float32, 0, unpackQ4K, nil},
	"Q5_K":   {"Q5_K", 256, 176, Affine{5, 32}, Float32, 0, unpackQ5K, nil},
	"Q6_K":   {"Q6_K", 256, 210, Affine{6, 16}, Float32, 32, unpackQ6K, nil},
	"Q8_K":   {"Q8_K", 256, 292, Affine{8, 32}, Float32, 128, unpackQ8K, nil},
	"IQ4_NL": {"IQ4_NL", 32, 18, Affine{8, 32}, Float16, 128, unpackIQ4NL, nil},
	"IQ4_XS": {"IQ4_XS", 256, 136, Affine{8, 32}, Float32, 128, unpackIQ4XS, nil},
	"MXFP4":  {"MXFP4", 32, 17, Affine{5, 32}, BFloat16, 16, unpackMXFP4, nil},
}

// The longest block, and the most groups in one.
const (
	maxValues = 256
	maxGroups = 16
)

// BlockFormat finds a block format by its ggml name.
func BlockFormat(name string) (Block, bool) {
	b, ok := blocks[name]
	return b, ok
}

// RowBytes is the stored size of a row of n values; n is a multiple of Values.
func (b Block) RowBytes(n int) int { return n / b.Values * b.Bytes }

// Wider reports whether the packing takes more bytes than the file even without its scales.
func (b Block) Wider() bool { return b.Codes.RowBytes(b.Values) > b.Bytes }

// Row decodes one row, with the bits of gguf-py's dequantize.
func (b Block) Row(dst []float32, src []byte) {
	var codes [maxValues]byte
	var scales, biases [maxGroups]float32
	group := b.Codes.Group
	for ; len(dst) > 0; dst, src = dst[b.Values:], src[b.Bytes:] {
		b.unpack(codes[:b.Values], scales[:], biases[:], src[:b.Bytes])
		for g := range b.Values / group {
			out, scale, bias := dst[g*group:(g+1)*group], scales[g], biases[g]
			q := codes[g*group:][:len(out)]
			if b.Offset > 0 {
				for i := range out {
					out[i] = scale * float32(int32(q[i])-int32(b.Offset))
				}
				continue
			}
			for i := range out {
				// The product is rounded before the sum: no fused multiply-add, so every platform has these bits.
				out[i] = float32(scale*float32(int32(q[i]))) + bias
			}
		}
	}
}

// ErrNotHeld says that a packing does not hold a row.
var ErrNotHeld = errors.New("a scale is beyond what the packing holds")

// Pack rewrites one row as MLX's packed codes with scales and biases of a type, all little-endian. Computed with a
// fused multiply-add the values equal Row's; but of a zero the sign may differ, and of a format with an Offset a group whose
// scale is not finite is all NaN. It fails with ErrNotHeld where the type does not hold a scale or a bias.
func (b Block) Pack(codes, scales, biases []byte, float Float, src []byte) error {
	p := packer{affine: b.Codes, scales: float, dst: [3][]byte{codes, scales, biases}}
	var q [maxValues]byte
	var s, m [maxGroups]float32
	group := b.Codes.Group
	for ; len(src) > 0; src = src[b.Bytes:] {
		b.unpack(q[:b.Values], s[:], m[:], src[:b.Bytes])
		for g := range b.Values / group {
			bias := m[g]
			if b.Offset > 0 {
				bias = -float32(b.Offset) * s[g]
			}
			if err := p.group(q[g*group:(g+1)*group], s[g], bias); err != nil {
				return err
			}
		}
	}
	return nil
}

// Quantize encodes one row as the reference quantizer of ggml does, false for formats that have none here; it exists to make
// test checkpoints.
func (b Block) Quantize(w []float32) ([]byte, bool) {
	if b.encode == nil {
		return nil, false
	}
	out := make([]byte, b.RowBytes(len(w)))
	for i := 0; i < len(w)/b.Values; i++ {
		b.encode(out[i*b.Bytes:(i+1)*b.Bytes], w[i*b.Values:(i+1)*b.Values])
	}
	return out, true
}

// half reads a half at a byte offset.
func half(src []byte, at int) float32 { return F16(binary.LittleEndian.Uint16(src[at:])) }

// each has 1 in each of eight bytes.
const each = 0x0101010101010101

// nibbles takes 2*len(src) codes apart, eight at a time: the low nibbles first, then the high ones.
func nibbles(codes, src []byte) {
	low, high := codes[:len(src)], codes[len(src):2*len(src)]
	for i := 0; i+8 <= len(src); i += 8 {
		eight := binary.LittleEndian.Uint64(src[i:])
		binary.LittleEndian.PutUint64(low[i:], eight&(15*each))
		binary.LittleEndian.PutUint64(high[i:], eight>>4&(15*each))
	}
}
