package mlx

import (
	"encoding/binary"
	"fmt"
	"math"
)

// intRange are the bounds of the integer types; the ends of the 64-bit ones are the nearest float64 inside.
var intRange = map[DType][2]float64{
	Bool: {0, 1}, Uint8: {0, math.MaxUint8}, Uint16: {0, math.MaxUint16}, Uint32: {0, math.MaxUint32},
	Uint64: {0, 1<<64 - 1<<11}, Int8: {math.MinInt8, math.MaxInt8}, Int16: {math.MinInt16, math.MaxInt16},
	Int32: {math.MinInt32, math.MaxInt32}, Int64: {math.MinInt64, 1<<63 - 1<<10},
}

// Scalar is a weak scalar, as Python's numbers are beside a float array: pass the dtype of the array it meets, so that
// bfloat16 stays bfloat16. An integer type takes whole numbers in its range only: Python would promote, nothing truncates.
func (s *Scope) Scalar(v float64, dtype DType) *Array {
	return s.scalarFor("scalar", v, dtype)
}

// scalarFor makes the scalar for an operation, which an error then names.
func (s *Scope) scalarFor(op string, v float64, dtype DType) *Array {
	if !s.usable(op) {
		return inert
	}
	b := &s.scalar
	*b = [8]byte{}
	switch dtype {
	case Float32, Complex64: // a complex number's real half comes first
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(float32(v)))
	case Float64:
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(v))
	case Float16:
		binary.LittleEndian.PutUint16(b[:], uint16(ToF16(float32(v))))
	case BFloat16:
		binary.LittleEndian.PutUint16(b[:], uint16(ToBF16(float32(v))))
	default:
		r, ok := intRange[dtype]
		if !ok || v != math.Trunc(v) || v < r[0] || v > r[1] {
			_ = s.Fail(&OpError{Op: s.op, Message: fmt.Sprintf("%v is no %s", v, dtype)})
			return inert
		}
		if v < 0 {
			binary.LittleEndian.PutUint64(b[:], uint64(int64(v)))
		} else {
			binary.LittleEndian.PutUint64(b[:], uint64(v))
		}
	}
	return FromBytes(s, dtype, nil, b[:dtype.Size()])
}
