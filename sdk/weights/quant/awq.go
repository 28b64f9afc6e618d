package quant

import (
	"encoding/binary"
	"math"
)

// awqPlace is which of a word's codes of four bits each of its eight columns has, as AutoAWQ packs them.
var awqPlace = [8]int{0, 4, 1, 5, 2, 6, 3, 7}

// AWQ is a matrix [Out, In] as AutoAWQ stores it, which MLX's affine mode holds after a repacking (mlx-lm 0.32.2, _transform_awq_weights):
// codes [In, Out/8] words, scales [In/Group, Out] of Scale, zeros as codes of [In/Group, Out], nil where all are 8. Its methods write rows
// [8*w, 8*w+8) of a result, which one goroutine does while others write others.
type AWQ struct {
	In, Out, Group int
	Scale          Float
}

// Codes writes rows of [Out, In/8] words.
func (a AWQ) Codes(dst, codes []byte, w int) {
	for in := range a.In {
		word := a.word(codes, in, w)
		for i, place := range awqPlace {
			dst[(8*w+i)*a.In/2+in/2] |= byte(word>>(4*place)&15) << (4 * (in % 2))
		}
	}
}

// Scales writes rows of scales and biases, [Out, In/Group].
func (a AWQ) Scales(dst, biases, scales, zeros []byte, w int) {
	groups, size := a.In/a.Group, a.Scale.Size()
	for g := range groups {
		for i, place := range awqPlace {
			from, to := scales[(g*a.Out+8*w+i)*size:][:size], ((8*w+i)*groups+g)*size
			copy(dst[to:], from)
			zero := float32(8)
			if zeros != nil {
				zero = float32(a.word(zeros, g, w) >> (4 * place) & 15)
			}
			a.Scale.Put(biases[to:], -zero*a.value(from))
		}
	}
}

func (a AWQ) word(words []byte, row, w int) uint32 {
	return binary.LittleEndian.Uint32(words[4*(row*a.Out/8+w):])
}

func (a AWQ) value(b []byte) float32 {
	switch a.Scale {
	case Float16:
		return F16(binary.LittleEndian.Uint16(b))
	case BFloat16:
		return BF16(binary.LittleEndian.Uint16(b))
	case Float32:
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}
