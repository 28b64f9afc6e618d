package quant

import (
	"encoding/binary"
	"math"
)

// Trellis is the mode "trellis": blocks of Block values along an axis of a matrix [out, in], 1 for a row's values and 0 for a
// column's, with a scale each. A block is a walk through a trellis, stored as a ring of Block*Bits bits in little-endian words: the
// state of value t is State bits of it from bit (Block-1-t)*Bits on, around its end, and stands for a value of QTIP's 1MAD code.
//
// Rings follow one another as blocks do along a row, [out, in/Block]; of axis 0, as columns do, [out/Block, in].
type Trellis struct {
	Bits, Block, State, Axis int
}

// The codes of Trellis: there is one.
const TrellisCode = "1mad"

// trellisDeviation is that of the sum of four bytes of the code's hash.
const trellisDeviation = 147.800537109375

// Valid reports whether the codec has this combination.
func (t Trellis) Valid() bool {
	return t.Bits >= 1 && t.Bits <= 8 && t.State >= t.Bits && t.State <= 32 && (t.Axis == 0 || t.Axis == 1) &&
		t.Block >= 16 && t.Block%16 == 0 && t.Block <= 4096 && t.Block*t.Bits%32 == 0 && t.Block*t.Bits >= t.State
}

// RingBytes is the packed size of a block.
func (t Trellis) RingBytes() int { return t.Block * t.Bits / 8 }

// Value is what a state stands for.
func (t Trellis) Value(state uint32) float32 {
	x := state*34038481 + 76625530
	sum := x&255 + x>>8&255 + x>>16&255 + x>>24
	return float32(int(sum)-510) / trellisDeviation
}

// StateAt is the state of value i of a block's ring.
func (t Trellis) StateAt(ring []byte, i int) uint32 {
	at := (t.Block - 1 - i) * t.Bits
	words := len(ring) / 4
	low := binary.LittleEndian.Uint32(ring[at/32*4:])
	high := binary.LittleEndian.Uint32(ring[(at/32+1)%words*4:])
	return uint32((uint64(high)<<32|uint64(low))>>(at%32)) & uint32(uint64(1)<<t.State-1)
}

// Row decodes what lies together: a row of dst's length, or of axis 0 Block rows, which dst holds one after another.
func (t Trellis) Row(dst []float32, rings []byte, scales []float32) {
	size := t.RingBytes()
	at, step := t.Block, 1 // where the next block begins in dst, and its next value
	if t.Axis == 0 {
		at, step = 1, len(scales)
	}
	for b, scale := range scales {
		ring := rings[b*size : (b+1)*size]
		for i := range t.Block {
			dst[b*at+i*step] = t.Value(t.StateAt(ring, i)) * scale
		}
	}
}

// TrellisScale is a scale that suits values of a block: their deviation.
func TrellisScale(values []float32) float32 {
	var sum float64
	for _, v := range values {
		sum += float64(v) * float64(v)
	}
	return float32(math.Sqrt(sum / float64(len(values))))
}
