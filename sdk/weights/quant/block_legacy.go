package quant

import (
	"encoding/binary"
	"math"
)

// Q4_0: half d, 16 bytes; w = d*(q-8). The low nibbles are values 0 to 15, the high ones 16 to 31.
func unpackQ40(codes []byte, scales, _ []float32, src []byte) {
	scales[0] = half(src, 0)
	nibbles(codes, src[2:18])
}

// Q4_1: halves d and m, 16 bytes in Q4_0's order; w = d*q + m.
func unpackQ41(codes []byte, scales, biases []float32, src []byte) {
	scales[0], biases[0] = half(src, 0), half(src, 2)
	nibbles(codes, src[4:20])
}

// Q5_0: half d, four bytes with the fifth bit of value i at bit i, 16 bytes in Q4_0's order; w = d*(q-16).
func unpackQ50(codes []byte, scales, _ []float32, src []byte) {
	scales[0] = half(src, 0)
	nibbles(codes, src[6:22])
	fifthBits(codes, src[2:6])
}

// Q5_1: halves d and m, then as Q5_0; w = d*q + m.
func unpackQ51(codes []byte, scales, biases []float32, src []byte) {
	scales[0], biases[0] = half(src, 0), half(src, 2)
	nibbles(codes, src[8:24])
	fifthBits(codes, src[4:8])
}

func fifthBits(codes, high []byte) {
	bits := binary.LittleEndian.Uint32(high)
	for i := range codes[:32] {
		codes[i] |= byte(bits>>i&1) << 4
	}
}

// Q8_0: half d, 32 signed bytes; w = d*q.
func unpackQ80(codes []byte, scales, _ []float32, src []byte) {
	scales[0] = half(src, 0)
	for i, q := range src[2:34] {
		codes[i] = q ^ 0x80
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
