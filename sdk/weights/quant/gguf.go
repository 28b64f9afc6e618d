package quant

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Block is one of GGUF's block formats (ggml-common.h of llama.cpp): Values consecutive values of a row in Bytes bytes.
type Block struct {
	Name          string
	Values, Bytes int
	decode        func(dst []float32, src []byte)
	encode        func(dst []byte, src []float32)
	// Affine is the packing that says the same: half scales and biases, one group a block.
	Affine Affine
	codes  func(dst, src []byte) (scale, bias uint16)
}

// blocks lists the formats that this version decodes.
var blocks = map[string]Block{
	"Q4_0": {"Q4_0", 32, 18, decodeQ40, encodeQ40, Affine{4, 32}, codesQ40},
	"Q4_1": {"Q4_1", 32, 20, decodeQ41, encodeQ41, Affine{4, 32}, codesQ41},
	"Q8_0": {"Q8_0", 32, 34, decodeQ80, encodeQ80, Affine{8, 32}, codesQ80},
}

// BlockFormat finds a block format by its ggml name.
func BlockFormat(name string) (Block, bool) {
	b, ok := blocks[name]
	return b, ok
}

// RowBytes is the stored size of a row of n values; n is a multiple of Values.
func (b Block) RowBytes(n int) int { return n / b.Values * b.Bytes }

// Row decodes one row.
func (b Block) Row(dst []float32, src []byte) {
	for len(dst) > 0 {
		b.decode(dst[:b.Values], src[:b.Bytes])
		dst, src = dst[b.Values:], src[b.Bytes:]
	}
}

// AffineRow rewrites one row of n values as MLX's packed codes with half scales and biases, all little-endian: the same values
// bit for bit. It fails where a bias is beyond what a half holds.
func (b Block) AffineRow(codes, scales, biases, src []byte) error {
	per := b.Affine.RowBytes(b.Values)
	for i := 0; len(src) > 0; i++ {
		scale, bias := b.codes(codes[i*per:(i+1)*per], src[:b.Bytes])
		if bias&0x7c00 == 0x7c00 && scale&0x7c00 != 0x7c00 {
			return fmt.Errorf("block %d: scale %g is too large for packed codes", i, F16(scale))
		}
		binary.LittleEndian.PutUint16(scales[2*i:], scale)
		binary.LittleEndian.PutUint16(biases[2*i:], bias)
		src = src[b.Bytes:]
	}
	return nil
}

// Quantize encodes one row as the reference quantizer of ggml does; it exists to make test checkpoints.
func (b Block) Quantize(w []float32) []byte {
	out := make([]byte, b.RowBytes(len(w)))
	for i := 0; i < len(w)/b.Values; i++ {
		b.encode(out[i*b.Bytes:(i+1)*b.Bytes], w[i*b.Values:(i+1)*b.Values])
	}
	return out
}

// Q4_0: half d, 16 bytes; w = d*(q-8). The low nibbles are values 0 to 15, the high ones 16 to 31.
func decodeQ40(dst []float32, src []byte) {
	d := F16(binary.LittleEndian.Uint16(src))
	for i, q := range src[2:18] {
		dst[i] = d * float32(int(q&15)-8)
		dst[i+16] = d * float32(int(q>>4)-8)
	}
}

// Q4_1: halves d and m, 16 bytes in Q4_0's order; w = d*q + m.
func decodeQ41(dst []float32, src []byte) {
	d, m := F16(binary.LittleEndian.Uint16(src)), F16(binary.LittleEndian.Uint16(src[2:]))
	for i, q := range src[4:20] {
		dst[i] = float32(d*float32(q&15)) + m
		dst[i+16] = float32(d*float32(q>>4)) + m
	}
}

// Q8_0: half d, 32 signed bytes; w = d*q.
func decodeQ80(dst []float32, src []byte) {
	d := F16(binary.LittleEndian.Uint16(src))
	for i, q := range src[2:34] {
		dst[i] = d * float32(int8(q))
	}
}

// nibblesInOrder repacks low nibbles first, then high ones, as pairs of neighbours.
func nibblesInOrder(dst, src []byte) {
	for i := range 8 {
		dst[i] = src[2*i]&15 | src[2*i+1]<<4
		dst[i+8] = src[2*i]>>4 | src[2*i+1]&0xf0
	}
}

func codesQ40(dst, src []byte) (scale, bias uint16) {
	nibblesInOrder(dst, src[2:18])
	scale = binary.LittleEndian.Uint16(src)
	return scale, ToF16(-8 * F16(scale))
}

func codesQ41(dst, src []byte) (scale, bias uint16) {
	nibblesInOrder(dst, src[4:20])
	return binary.LittleEndian.Uint16(src), binary.LittleEndian.Uint16(src[2:])
}

func codesQ80(dst, src []byte) (scale, bias uint16) {
	for i, q := range src[2:34] {
		dst[i] = q + 128
	}
	scale = binary.LittleEndian.Uint16(src)
	return scale, ToF16(-128 * F16(scale))
}

func encodeQ40(dst []byte, src []float32) {
	var edge float32
	for _, v := range src {
		if abs(v) > abs(edge) {
			edge = v
		}
	}
	d := edge / -8
	binary.LittleEndian.PutUint16(dst, ToF16(d))
	code := func(v float32) byte { return byte(min(int(v*inverse(d)+8.5), 15)) }
	for i := range 16 {
		dst[2+i] = code(src[i]) | code(src[i+16])<<4
	}
}

func encodeQ41(dst []byte, src []float32) {
	lo, hi := src[0], src[0]
	for _, v := range src {
		lo, hi = min(lo, v), max(hi, v)
	}
	d := (hi - lo) / 15
	binary.LittleEndian.PutUint16(dst, ToF16(d))
	binary.LittleEndian.PutUint16(dst[2:], ToF16(lo))
	code := func(v float32) byte { return byte(min(int((v-lo)*inverse(d)+0.5), 15)) }
	for i := range 16 {
		dst[4+i] = code(src[i]) | code(src[i+16])<<4
	}
}

func encodeQ80(dst []byte, src []float32) {
	var edge float32
	for _, v := range src {
		edge = max(edge, abs(v))
	}
	d := edge / 127
	binary.LittleEndian.PutUint16(dst, ToF16(d))
	for i, v := range src {
		dst[2+i] = byte(int8(math.Round(float64(v * inverse(d)))))
	}
}

func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}
