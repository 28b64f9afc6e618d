package quant

import (
	"encoding/binary"
	"math"
)

// F32Row decodes little-endian float32 values.
func F32Row(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// F16Row decodes IEEE half precision values.
func F16Row(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = F16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// BF16Row decodes bfloat16 values.
func BF16Row(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = BF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// F16 is the value of half precision bits; exact.
func F16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch exp {
	case 0: // zero and subnormals: frac * 2^-24
		v := float32(frac) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(v))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// BF16 is the value of bfloat16 bits; exact.
func BF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBF16 rounds to nearest, ties to even; a NaN stays a NaN.
func ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + (b>>16)&1) >> 16)
}

// ToF16 rounds to nearest, ties to even; values beyond 65504 become infinite.
func ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00
	case b >= 0x47800000: // 65536 and up, infinity among them
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: a subnormal half, whose unit is 2^-24
		// Adding 0.5 leaves, by float32's own rounding, exactly the multiple of 2^-24 in the low bits.
		v := math.Float32frombits(b) + 0.5
		return sign | uint16(math.Float32bits(v)-math.Float32bits(0.5))
	}
	b += 0xfff + (b>>13)&1
	return sign | uint16((b-0x38000000)>>13)
}
