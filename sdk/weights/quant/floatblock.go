package quant

import "math"

// FloatBlock is one of MLX's modes whose elements are small floats: groups of Group along a row share a scale byte.
type FloatBlock struct {
	Mode        string
	Bits, Group int
	// Affine is the packing that says the same; its zero value for a mode that has none.
	Affine Affine
	scale  func(byte) float32
}

// floatBlocks lists MLX's modes (mx.quantize of MLX 0.32). e2m1 doubled is a whole number from -12 to 12: a code of five bits,
// which groups of 16 take eight for, because a row of codes must fill whole 32-bit words.
var floatBlocks = []FloatBlock{
	{"mxfp4", 4, 32, Affine{5, 32}, e8m0},
	{"nvfp4", 4, 16, Affine{8, 16}, e4m3},
	{"mxfp8", 8, 32, Affine{}, e8m0},
}

// FloatBlockOf finds the mode of codes of bits in groups; each mode has one combination.
func FloatBlockOf(bits, group int) (FloatBlock, bool) {
	for _, f := range floatBlocks {
		if f.Bits == bits && f.Group == group {
			return f, true
		}
	}
	return FloatBlock{}, false
}

// FloatBlockMode finds a mode by MLX's name.
func FloatBlockMode(name string) (FloatBlock, bool) {
	for _, f := range floatBlocks {
		if f.Mode == name {
			return f, true
		}
	}
	return FloatBlock{}, false
}

// HasAffine reports whether Pack writes the mode.
func (f FloatBlock) HasAffine() bool { return f.Affine.Bits != 0 }

// TakesGlobal reports whether a tensor of the mode may have a global scale.
func (f FloatBlock) TakesGlobal() bool { return f.Mode == "nvfp4" }

// RowBytes is the packed size of a row of n values.
func (f FloatBlock) RowBytes(n int) int { return n * f.Bits / 8 }

// NoGlobal is the global scale of a tensor that has none: it divides out.
const NoGlobal = float32(globalUnit)

// globalUnit is the largest product of an e2m1 and an e4m3 value: MLX's nvfp4 holds a tensor whose largest magnitude is the
// global scale.
const globalUnit = 6 * 448

// Row decodes one row with the bits of mx.dequantize to float32.
func (f FloatBlock) Row(dst []float32, codes, scales []byte, global float32) {
	by := global / globalUnit
	for g, s := range scales {
		scale := f.scale(s) * by
		out := dst[g*f.Group : (g+1)*f.Group]
		if f.Bits == 4 {
			for i, q := range codes[g*f.Group/2 : (g+1)*f.Group/2] {
				out[2*i], out[2*i+1] = scale*valuesE2M1[q&15], scale*valuesE2M1[q>>4]
			}
			continue
		}
		for i, q := range codes[g*f.Group : (g+1)*f.Group] {
			out[i] = scale * valuesE4M3[q]
		}
	}
}

// Pack rewrites one row for a mode with an Affine, as Block.Pack does.
func (f FloatBlock) Pack(codes, scales, biases []byte, float Float, packed, groups []byte, global float32) error {
	p := packer{affine: f.Affine, scales: float, dst: [3][]byte{codes, scales, biases}}
	by := global / globalUnit
	var q [32]byte
	for g, s := range groups {
		for i, pair := range packed[g*f.Group/2 : (g+1)*f.Group/2] {
			q[2*i], q[2*i+1] = levelsE2M1[pair&15], levelsE2M1[pair>>4]
		}
		// A code is twice the value, and 16 more.
		scale := f.scale(s) * by
		if half := scale / 2; half*2 != scale && finite(scale) {
			return ErrNotHeld
		}
		if err := p.group(q[:f.Group], scale/2, -8*scale); err != nil {
			return err
		}
	}
	return nil
}

// valuesE2M1 are the sixteen values of an e2m1; bit 3 is the sign.
var valuesE2M1 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, negativeZero, -0.5, -1, -1.5, -2, -3, -4, -6}

var negativeZero = math.Float32frombits(1 << 31)

// levelsE2M1 are twice the values, and 16 more: with that offset a bias is a power of two times its scale, so exact.
var levelsE2M1 = [16]byte{16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4}

// valuesE4M3 are the values of MLX's e4m3, which has no NaN: the bits of one are 480.
var valuesE4M3 = func() (v [256]float32) {
	for b := range v {
		exponent, fraction := b>>3&15, float32(b&7)
		x := (1 + fraction/8) * power(exponent-7)
		if exponent == 0 {
			x = fraction * power(-9)
		}
		v[b] = math.Float32frombits(math.Float32bits(x) | uint32(b&128)<<24)
	}
	return v
}()

func e4m3(b byte) float32 { return valuesE4M3[b] }

// e8m0 is 2^(b-127); MLX's 255 is infinite.
func e8m0(b byte) float32 { return power(int(b) - 127) }

// power is 2^e in float32: exact down to 2^-149, infinite from 2^128.
func power(e int) float32 {
	switch {
	case e >= 128:
		return float32(math.Inf(1))
	case e < -126:
		return math.Float32frombits(1 << (e + 149))
	}
	return math.Float32frombits(uint32(e+127) << 23)
}
