package mlx

import (
	"fmt"
	"math"
)

// DType is an element type. The values are mlx-c's.
type DType int

// Element types.
const (
	Bool DType = iota
	Uint8
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
	Float16
	Float32
	Float64
	BFloat16
	Complex64
)

var dtypes = [...]struct {
	name string
	size int
}{
	{"bool", 1},
	{"uint8", 1},
	{"uint16", 2},
	{"uint32", 4},
	{"uint64", 8},
	{"int8", 1},
	{"int16", 2},
	{"int32", 4},
	{"int64", 8},
	{"float16", 2},
	{"float32", 4},
	{"float64", 8},
	{"bfloat16", 2},
	{"complex64", 8},
}

// Valid tells whether d is one of the constants above.
func (d DType) Valid() bool { return d >= 0 && int(d) < len(dtypes) }

// String is MLX's name of the type, such as "bfloat16".
func (d DType) String() string {
	if !d.Valid() {
		return fmt.Sprintf("dtype(%d)", int(d))
	}
	return dtypes[d].name
}

// Size is the bytes of one element; 0 when d is not valid.
func (d DType) Size() int {
	if !d.Valid() {
		return 0
	}
	return dtypes[d].size
}

// IsFloat tells whether d is a real floating-point type.
func (d DType) IsFloat() bool {
	return d == Float16 || d == Float32 || d == Float64 || d == BFloat16
}

// ParseDType is the inverse of String.
func ParseDType(name string) (DType, bool) {
	for i, t := range dtypes {
		if t.name == name {
			return DType(i), true
		}
	}
	return 0, false
}

// F16 is an IEEE half as its bits; BF16 a bfloat16 as its bits. Go has no such types; they carry elements to and from arrays.
type (
	F16  uint16
	BF16 uint16
)

// Float32 is the exact value.
func (b BF16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBF16 rounds to nearest, ties to even; a NaN stays a NaN.
func ToBF16(f float32) BF16 {
	u := math.Float32bits(f)
	if f != f {
		return BF16(u>>16 | 0x40)
	}
	return BF16((u + 0x7fff + (u>>16)&1) >> 16)
}

// Float32 is the exact value.
func (h F16) Float32() float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	man := uint32(h & 0x3ff)
	switch exp {
	case 0: // zero and subnormals: man * 2^-24 is exact in float32
		return math.Float32frombits(sign | math.Float32bits(float32(man)*(1.0/(1<<24))))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}

// ToF16 rounds to nearest, ties to even; a NaN stays a NaN; overflow is infinity.
func ToF16(f float32) F16 {
	u := math.Float32bits(f)
	sign := F16(u >> 16 & 0x8000)
	u &= 0x7fffffff
	switch {
	case u > 0x7f800000:
		return sign | 0x7e00
	case u >= 0x477ff000: // 65520 rounds to infinity
		return sign | 0x7c00
	case u < 0x38800000: // below 2^-14: a multiple of 2^-24, rounded by the float32 adder
		sub := math.Float32bits(math.Float32frombits(u) + 0.5)
		return sign | F16(sub-0x3f000000)
	}
	u += 0xfff + (u>>13)&1
	return sign | F16(u>>13-112<<10)
}

// Opt is an argument that MLX lets one leave out. The zero value leaves it out.
type Opt[T any] struct {
	Value T
	Set   bool
}

// Some is an Opt that is set.
func Some[T any](v T) Opt[T] { return Opt[T]{Value: v, Set: true} }

// FFTNorm is how a Fourier transform is scaled.
type FFTNorm int

// Norms of the Fourier transforms.
const (
	FFTBackward FFTNorm = iota
	FFTOrtho
	FFTForward
)
