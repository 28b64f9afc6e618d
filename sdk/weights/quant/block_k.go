package quant

import (
	"encoding/binary"
	"math"
)

// The K formats are super-blocks of 256 values: a half d (and dmin) over small whole scales (and minima) of 16 or 32 values.
// Products of a half and a whole number below 128 are exact in float32.

// twoBits takes 256 two-bit codes apart: byte l of 32 holds values l, l+32, l+64, l+96 of a half of the super-block.
func twoBits(codes, src []byte) {
	for c := range 2 {
		qs, out := src[32*c:32*c+32], codes[128*c:128*c+128]
		for l := 0; l < 32; l += 8 {
			eight := binary.LittleEndian.Uint64(qs[l:])
			for j := range 4 {
				binary.LittleEndian.PutUint64(out[32*j+l:], eight>>(2*j)&(3*each))
			}
		}
	}
}

// oneBit adds bit i of byte l, shifted, to code 32*i+l.
func oneBit(codes, src []byte, shift int) {
	for l := 0; l < 32; l += 8 {
		eight := binary.LittleEndian.Uint64(src[l:])
		for i := range 8 {
			join(codes[32*i+l:], eight>>i&each<<shift)
		}
	}
}

// join adds bits to eight codes.
func join(codes []byte, bits uint64) {
	binary.LittleEndian.PutUint64(codes, binary.LittleEndian.Uint64(codes)|bits)
}

// Q2_K: 16 bytes of scale (low nibble) and minimum (high), 64 bytes of codes, halves d and dmin.
func unpackQ2K(codes []byte, scales, biases []float32, src []byte) {
	d, dmin := half(src, 80), half(src, 82)
	for g, s := range src[:16] {
		scales[g], biases[g] = d*float32(s&15), -(dmin * float32(s>>4))
	}
	twoBits(codes, src[16:80])
}

// Q3_K: 32 bytes of third bits, 64 of low bits, 12 of six-bit scales, half d. A third bit that is not set takes 4 off.
func unpackQ3K(codes []byte, scales, _ []float32, src []byte) {
	d, packed := half(src, 108), src[96:108]
	for g := range 16 {
		low := packed[g%8] >> (g / 8 * 4) & 15
		high := packed[8+g%4] >> (g / 4 * 2) & 3
		scales[g] = d * float32(int(low|high<<4)-32)
	}
	twoBits(codes, src[32:96])
	oneBit(codes, src[:32], 2)
}

// scalesAndMinima takes the 12 bytes of Q4_K and Q5_K apart: eight six-bit scales and minima. The first four of each lie in the low bits
// of bytes 0 to 7; of the others the low four bits in bytes 8 to 11, the high two in the high bits of bytes 0 to 7.
func scalesAndMinima(scales, biases []float32, src []byte) {
	d, dmin, packed := half(src, 0), half(src, 2), src[4:16]
	for g := range 4 {
		a, b, both := packed[g], packed[g+4], packed[g+8]
		scales[g], biases[g] = d*float32(a&63), -(dmin * float32(b&63))
		scales[g+4] = d * float32(both&15|a>>6<<4)
		biases[g+4] = -(dmin * float32(both>>4|b>>6<<4))
	}
}

// Q4_K: halves d and dmin, 12 bytes of scales, 128 bytes: each 32 hold the low nibbles of 32 values, then the high ones.
func unpackQ4K(codes []byte, scales, biases []float32, src []byte) {
	scalesAndMinima(scales, biases, src)
	for c := range 4 {
		nibbles(codes[64*c:64*c+64], src[16+32*c:48+32*c])
	}
}

// Q5_K: as Q4_K, with 32 bytes of fifth bits before the nibbles.
func unpackQ5K(codes []byte, scales, biases []float32, src []byte) {
	scalesAndMinima(scales, biases, src)
	for c := range 4 {
		nibbles(codes[64*c:64*c+64], src[48+32*c:80+32*c])
	}
	oneBit(codes, src[16:48], 4)
}

// Q6_K: 128 bytes of low nibbles, 64 of high pairs, 16 signed scales, half d; w = d*scale*(q-32).
func unpackQ6K(codes []byte, scales, _ []float32, src []byte) {
	d := half(src, 208)
	for g, s := range src[192:208] {
		scales[g] = d * float32(int8(s))
	}
	for c := range 2 {
		out, low, high := codes[128*c:128*c+128], src[64*c:64*c+64], src[128+32*c:160+32*c]
		nibbles(out, low)
		for l := 0; l < 32; l += 8 {
			eight := binary.LittleEndian.Uint64(high[l:])
			for j := range 4 {
				join(out[32*j+l:], eight>>(2*j)&(3*each)<<4)
			}
		}
	}
}

// levels4 are the sixteen values of IQ4_NL and IQ4_XS (kvalues_iq4nl in ggml-common.h), and 128 more: a code.
var levels4 = [16]byte{
	128 - 127, 128 - 104, 128 - 83, 128 - 65, 128 - 49, 128 - 35, 128 - 22, 128 - 10,
	128 + 1, 128 + 13, 128 + 25, 128 + 38, 128 + 53, 128 + 69, 128 + 89, 128 + 113,
}

// IQ4_NL: half d, 16 bytes in Q4_0's order; w = d*level.
func unpackIQ4NL(codes []byte, scales, _ []float32, src []byte) {
	scales[0] = half(src, 0)
	nibbles(codes, src[2:18])
	look(codes[:32], &levels4)
}

// IQ4_XS: half d, two bytes with the high pairs of eight six-bit scales, four with their low nibbles, 128 bytes in Q4_0's order.
func unpackIQ4XS(codes []byte, scales, _ []float32, src []byte) {
	d, high := half(src, 0), binary.LittleEndian.Uint16(src[2:])
	for g := range 8 {
		low := src[4+g/2] >> (g % 2 * 4) & 15
		scales[g] = d * float32(int(low|byte(high>>(2*g)&3)<<4)-32)
		nibbles(codes[32*g:32*g+32], src[8+16*g:24+16*g])
	}
	look(codes[:256], &levels4)
}

func look(codes []byte, levels *[16]byte) {
	for i, c := range codes {
		codes[i] = levels[c&15]
	}
}

// MXFP4: an exponent, 16 bytes in Q4_0's order; w = 2^(e-128) * twice the e2m1 value.
func unpackMXFP4(codes []byte, scales, _ []float32, src []byte) {
	scales[0] = power(int(src[0]) - 128)
	nibbles(codes, src[1:17])
	look(codes[:32], &levelsE2M1)
}

// Q8_K: a float32 d, 256 signed bytes, then their sums in sixteens, which only a product of codes would want; w = d*q.
func unpackQ8K(codes []byte, scales, _ []float32, src []byte) {
	d := math.Float32frombits(binary.LittleEndian.Uint32(src))
	for g := range 8 {
		scales[g] = d
	}
	for i := 0; i < 256; i += 8 { // a signed byte and 128 more is the byte with its sign turned
		binary.LittleEndian.PutUint64(codes[i:], binary.LittleEndian.Uint64(src[4+i:])^(128*each))
	}
}
