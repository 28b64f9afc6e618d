package quant

import (
	"encoding/binary"
	"math"
)

// Float is a plain float type.
type Float int

// The float types of files and of packings' scales.
const (
	Float32 Float = iota
	Float16
	BFloat16
)

// Size is a value's bytes.
func (f Float) Size() int {
	if f == Float32 {
		return 4
	}
	return 2
}

// Put rounds v into dst, little-endian, and reports whether it is held exactly: the same number, or infinite or NaN as v is.
func (f Float) Put(dst []byte, v float32) bool {
	var back float32
	switch f {
	case Float16:
		h := ToF16(v)
		binary.LittleEndian.PutUint16(dst, h)
		back = F16(h)
	case BFloat16:
		h := ToBF16(v)
		binary.LittleEndian.PutUint16(dst, h)
		back = BF16(h)
	default:
		binary.LittleEndian.PutUint32(dst, math.Float32bits(v))
		back = v
	}
	return back == v || v != v
}

// packer writes the groups of one row, in order, as the kernels take them.
type packer struct {
	affine Affine
	scales Float
	dst    [3][]byte // codes, scales, biases that are still to be written
}

func (p *packer) group(codes []byte, scale, bias float32) error {
	p.dst[0] = packCodes(p.dst[0], codes, p.affine.Bits)
	heldScale, heldBias := p.scales.Put(p.dst[1], scale), p.scales.Put(p.dst[2], bias)
	size := p.scales.Size()
	p.dst[1], p.dst[2] = p.dst[1][size:], p.dst[2][size:]
	if heldScale && heldBias && (finite(bias) || !finite(scale)) {
		return nil
	}
	return ErrNotHeld
}

func finite(v float32) bool { return v-v == 0 }

// packCodes writes codes, a multiple of eight, as a little-endian bit stream and returns what is left of dst.
func packCodes(dst, codes []byte, bits int) []byte {
	if bits == 8 {
		return dst[copy(dst, codes):]
	}
	for ; len(codes) >= 8; codes = codes[8:] {
		c := binary.LittleEndian.Uint64(codes)
		// Neighbours join to pairs, pairs to fours, fours to eight.
		c = c&0x00ff00ff00ff00ff | c>>8&0x00ff00ff00ff00ff<<bits
		c = c&0x0000ffff0000ffff | c>>16&0x0000ffff0000ffff<<(2*bits)
		c = c&0x00000000ffffffff | c>>32<<(4*bits)
		if bits == 4 {
			binary.LittleEndian.PutUint32(dst, uint32(c))
		} else {
			for i := range bits {
				dst[i] = byte(c >> (8 * i))
			}
		}
		dst = dst[bits:]
	}
	return dst
}
