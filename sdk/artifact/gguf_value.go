package artifact

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// Value types of GGUF metadata, by their number in the file.
const (
	ggufU8 = iota
	ggufI8
	ggufU16
	ggufI16
	ggufU32
	ggufI32
	ggufF32
	ggufBool
	ggufString
	ggufArray
	ggufU64
	ggufI64
	ggufF64
)

// ggufWidth is the bytes of a scalar of each type; strings and arrays are counted at their length word.
var ggufWidth = [...]int64{
	ggufU8: 1, ggufI8: 1, ggufU16: 2, ggufI16: 2, ggufU32: 4, ggufI32: 4, ggufF32: 4, ggufBool: 1,
	ggufString: 8, ggufArray: 12, ggufU64: 8, ggufI64: 8, ggufF64: 8,
}

// value reads one metadata value: int64, uint64 (only when it does not fit int64), float64, bool, string, []int64,
// []uint64, []float64, []bool, []string, or []any of arrays.
func (r *ggufReader) value(kind uint32, depth int) (any, error) {
	if kind >= uint32(len(ggufWidth)) {
		return nil, fmt.Errorf("metadata type %d is unknown", kind)
	}
	switch kind {
	case ggufString:
		return r.text(ggufStringLimit)
	case ggufArray:
		return r.list(depth + 1)
	}
	p, err := r.bytes(ggufWidth[kind])
	if err != nil {
		return nil, err
	}
	switch kind {
	case ggufF32, ggufF64:
		return ggufFloat(kind, p), nil
	case ggufBool:
		return ggufTruth(p[0])
	case ggufU64:
		if n := binary.LittleEndian.Uint64(p); n > maxInt64 {
			return n, nil
		}
	}
	return ggufInt(kind, p), nil
}

// list reads an array after its type number.
func (r *ggufReader) list(depth int) (any, error) {
	if depth > ggufNestLimit {
		return nil, fmt.Errorf("arrays nested deeper than %d", ggufNestLimit)
	}
	kind, err := r.u32()
	if err != nil {
		return nil, err
	}
	if kind >= uint32(len(ggufWidth)) {
		return nil, fmt.Errorf("array of unknown type %d", kind)
	}
	n, err := r.count("array elements", ggufItemLimit, ggufWidth[kind])
	if err != nil {
		return nil, err
	}
	if r.items += n; r.items > ggufItemLimit {
		return nil, fmt.Errorf("more than %d array elements in one file", ggufItemLimit)
	}
	switch kind {
	case ggufString:
		return gather(n, func() (string, error) { return r.text(ggufStringLimit) })
	case ggufArray:
		return gather(n, func() (any, error) { return r.list(depth + 1) })
	}
	return r.scalars(kind, n)
}

// gather reads n elements, growing as they come so that a lying count costs nothing.
func gather[T any](n int64, next func() (T, error)) ([]T, error) {
	out := make([]T, 0, min(n, 1<<16))
	for range n {
		v, err := next()
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// scalars reads n fixed-width values; count has checked that the file holds them.
func (r *ggufReader) scalars(kind uint32, n int64) (any, error) {
	width := ggufWidth[kind]
	raw, err := r.bytes(n * width)
	if err != nil {
		return nil, err
	}
	at := func(i int) []byte { return raw[int64(i)*width:][:width] }
	switch kind {
	case ggufF32, ggufF64:
		out := make([]float64, n)
		for i := range out {
			out[i] = ggufFloat(kind, at(i))
		}
		return out, nil
	case ggufBool:
		out := make([]bool, n)
		for i := range out {
			if out[i], err = ggufTruth(at(i)[0]); err != nil {
				return nil, err
			}
		}
		return out, nil
	case ggufU64:
		out := make([]uint64, n)
		for i := range out {
			out[i] = binary.LittleEndian.Uint64(at(i))
		}
		return out, nil
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = ggufInt(kind, at(i))
	}
	return out, nil
}

func ggufTruth(b byte) (bool, error) {
	if b > 1 {
		return false, fmt.Errorf("a boolean holds the byte %d", b)
	}
	return b == 1, nil
}

func ggufInt(kind uint32, p []byte) int64 {
	switch kind {
	case ggufU8:
		return int64(p[0])
	case ggufI8:
		return int64(int8(p[0]))
	case ggufU16:
		return int64(binary.LittleEndian.Uint16(p))
	case ggufI16:
		return int64(int16(binary.LittleEndian.Uint16(p)))
	case ggufU32:
		return int64(binary.LittleEndian.Uint32(p))
	case ggufI32:
		return int64(int32(binary.LittleEndian.Uint32(p)))
	}
	return int64(binary.LittleEndian.Uint64(p))
}

// ggufFloat reads a float; a float32 becomes the float64 that its shortest decimal form spells, so that 1e-05 stays the
// 1e-05 of the config.json it came from.
func ggufFloat(kind uint32, p []byte) float64 {
	if kind == ggufF64 {
		return math.Float64frombits(binary.LittleEndian.Uint64(p))
	}
	single := float64(math.Float32frombits(binary.LittleEndian.Uint32(p)))
	exact, err := strconv.ParseFloat(strconv.FormatFloat(single, 'g', -1, 32), 64)
	if err != nil {
		return single
	}
	return exact
}

// GGUFMetadata is the key-value part of a GGUF file. Getters give false for an absent key or another type.
type GGUFMetadata struct {
	// Version is 2 or 3.
	Version int

	file   string
	keys   []string
	values map[string]any
}

// Keys lists the keys in file order.
func (m *GGUFMetadata) Keys() []string { return m.keys }

// Get is the raw value: int64, uint64 (beyond int64 only), float64, bool, string, []int64, []uint64, []float64, []bool,
// []string or []any.
func (m *GGUFMetadata) Get(key string) (any, bool) {
	v, ok := m.values[key]
	return v, ok
}

// Architecture is general.architecture, empty when absent.
func (m *GGUFMetadata) Architecture() string {
	s, _ := m.String("general.architecture")
	return s
}

// String reads a string.
func (m *GGUFMetadata) String(key string) (string, bool) {
	v, ok := m.values[key].(string)
	return v, ok
}

// Int reads any integer that fits int64.
func (m *GGUFMetadata) Int(key string) (int64, bool) {
	v, ok := m.values[key].(int64)
	return v, ok
}

// Uint reads any integer that is not negative.
func (m *GGUFMetadata) Uint(key string) (uint64, bool) {
	switch v := m.values[key].(type) {
	case uint64:
		return v, true
	case int64:
		return uint64(v), v >= 0
	}
	return 0, false
}

// Float reads a float or an integer.
func (m *GGUFMetadata) Float(key string) (float64, bool) {
	switch v := m.values[key].(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	}
	return 0, false
}

// Bool reads a boolean.
func (m *GGUFMetadata) Bool(key string) (bool, bool) {
	v, ok := m.values[key].(bool)
	return v, ok
}

// Strings reads an array of strings. The slice must not be changed.
func (m *GGUFMetadata) Strings(key string) ([]string, bool) {
	v, ok := m.values[key].([]string)
	return v, ok
}

// Ints reads an array of integers that fit int64. The slice must not be changed.
func (m *GGUFMetadata) Ints(key string) ([]int64, bool) {
	switch v := m.values[key].(type) {
	case []int64:
		return v, true
	case []uint64:
		out := make([]int64, len(v))
		for i, n := range v {
			if n > maxInt64 {
				return nil, false
			}
			out[i] = int64(n)
		}
		return out, true
	}
	return nil, false
}

// Floats reads an array of floats. The slice must not be changed.
func (m *GGUFMetadata) Floats(key string) ([]float64, bool) {
	v, ok := m.values[key].([]float64)
	return v, ok
}

// alignment is general.alignment, checked.
func (m *GGUFMetadata) alignment() (int64, error) {
	v, ok := m.Get("general.alignment")
	if !ok {
		return ggufAlign, nil
	}
	n, ok := v.(int64)
	if !ok || n <= 0 || n > ggufAlignMax || n&(n-1) != 0 {
		return 0, corrupt(m.file, "general.alignment", "is %v, want a power of two up to %d", v, ggufAlignMax)
	}
	return n, nil
}
