package quant

import (
	"encoding/binary"
	"math"
)

// Block is one of GGUF's block formats (ggml-common.h of llama.cpp): Values consecutive values of a row in Bytes bytes.
type Block struct {
	Name          string
	Values, Bytes int
	decode        func(dst []float32, src []byte)
	encode        func(dst []byte, src []float32)
}

// blocks lists the formats that this version decodes.
var blocks = map[string]Block{
	"Q4_0": {"Q4_0", 32, 18, decodeQ40, encodeQ40},
	"Q4_1": {"Q4_1", 32, 20, decodeQ41, encodeQ41},
	"Q8_0": {"Q8_0", 32, 34, decodeQ80, encodeQ80},
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
