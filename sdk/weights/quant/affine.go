package quant

import (
	"encoding/binary"
	"math"
)

// Affine is MLX's mode "affine": groups of Group values along a row share a scale and a bias, w = scale*q + bias, with
// codes of Bits bits packed as one little-endian bit stream per row.
type Affine struct {
	Bits, Group int
}

// Valid reports whether MLX has this combination.
func (a Affine) Valid() bool {
	switch a.Bits {
	case 2, 3, 4, 5, 6, 8:
	default:
		return false
	}
	return a.Group == 32 || a.Group == 64 || a.Group == 128
}

// RowBytes is the packed size of a row of n values.
func (a Affine) RowBytes(n int) int { return n * a.Bits / 8 }

// Row decodes one row: dst is a multiple of the group long, scales and biases have one value a group.
func (a Affine) Row(dst []float32, packed []byte, scales, biases []float32) {
	bits, mask := a.Bits, uint64(1)<<a.Bits-1
	for g := range scales {
		scale, bias := scales[g], biases[g]
		out := dst[g*a.Group : (g+1)*a.Group]
		// Eight codes fill as many bytes as one has bits.
		for ; len(out) >= 8; out, packed = out[8:], packed[bits:] {
			var word uint64
			if len(packed) >= 8 {
				word = binary.LittleEndian.Uint64(packed)
			} else {
				for i, b := range packed {
					word |= uint64(b) << (8 * i)
				}
			}
			for i := range 8 {
				// The product is rounded before the sum: no fused multiply-add, so every platform has these bits.
				out[i] = float32(scale*float32(uint32(word&mask))) + bias
				word >>= bits
			}
		}
	}
}

// Quantize encodes one row as mx.quantize of MLX 0.32 does on the CPU; it exists to make test checkpoints. Scales and
// biases are the float32 values before a checkpoint stores them in its own dtype.
func (a Affine) Quantize(w []float32) (packed []byte, scales, biases []float32) {
	packed = make([]byte, a.RowBytes(len(w)))
	scales, biases = make([]float32, len(w)/a.Group), make([]float32, len(w)/a.Group)
	bit := 0
	for g := range scales {
		group := w[g*a.Group : (g+1)*a.Group]
		scale, bias := a.fit(group)
		scales[g], biases[g] = scale, bias
		for _, v := range group {
			q := math.RoundToEven(float64((v - bias) / scale))
			q = min(max(q, 0), float64(a.levels()))
			putBits(packed, bit, a.Bits, uint32(q))
			bit += a.Bits
		}
	}
	return packed, scales, biases
}

func (a Affine) levels() float32 { return float32(int(1)<<a.Bits - 1) }

// fit chooses scale and bias so that the value farthest from zero, and zero itself, are exact.
func (a Affine) fit(group []float32) (scale, bias float32) {
	lo, hi := group[0], group[0]
	for _, v := range group {
		lo, hi = min(lo, v), max(hi, v)
	}
	scale = max((hi-lo)/a.levels(), 1e-7)
	edge := lo
	if abs(lo) <= abs(hi) {
		scale, edge = -scale, hi
	}
	q0 := float32(math.RoundToEven(float64(edge / scale)))
	if q0 == 0 {
		return scale, 0
	}
	return edge / q0, edge
}

func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// putBits ors the low n bits of v into the little-endian bit stream at bit offset at.
func putBits(stream []byte, at, n int, v uint32) {
	for i := range n {
		stream[(at+i)/8] |= byte(v>>i&1) << ((at + i) % 8)
	}
}
