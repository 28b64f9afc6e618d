package mlx

// #include "shim.h"
// #cgo noescape cx_array_from_data
// #cgo nocallback cx_array_from_data
// #cgo noescape cx_describe
// #cgo nocallback cx_describe
// #cgo noescape cx_row_contiguous
// #cgo nocallback cx_row_contiguous
import "C"

import (
	"fmt"
	"slices"
	"unsafe"
)

// maxDims is the most dimensions an array of this binding can have; models use up to 6.
const maxDims = 16

// Array is a handle on an MLX array, evaluated or not. Its scope frees it, or Close when it was kept.
type Array struct {
	ctx   unsafe.Pointer
	scope *Scope
	index int // in scope.arrays

	known  bool
	dtype  DType
	nbytes int
	shape  []int
}

// inert is what operations return after an error: no shape, no memory, an error as input of another scope.
var inert = &Array{known: true}

func (a *Array) handle() unsafe.Pointer {
	if a == nil {
		return nil
	}
	return a.ctx
}

// describe reads shape, dtype and size once; they never change.
func (a *Array) describe() {
	if a.known || a.ctx == nil {
		return
	}
	var dtype, ndim C.int
	var nbytes C.size_t
	var dims [maxDims]C.int64_t
	if C.cx_describe(a.ctx, &dtype, &ndim, &nbytes, &dims[0], maxDims) != 0 {
		if msg := takeMessage(); a.scope != nil {
			_ = a.scope.Fail(&OpError{Op: "shape", Message: msg})
		}
		return
	}
	a.shape = make([]int, ndim)
	for i := range a.shape {
		a.shape[i] = int(dims[i])
	}
	a.dtype, a.nbytes, a.known = DType(dtype), int(nbytes), true
}

// Shape is the array's own slice: do not write to it. Nil for an inert or closed array.
func (a *Array) Shape() []int {
	a.describe()
	return a.shape
}

// NDim is the number of dimensions.
func (a *Array) NDim() int { return len(a.Shape()) }

// Dim is the size along axis i; negative i counts from the end. 0 for an axis that the array has not.
func (a *Array) Dim(i int) int {
	sh := a.Shape()
	if i < 0 {
		i += len(sh)
	}
	if i < 0 || i >= len(sh) {
		return 0
	}
	return sh[i]
}

// Size is the number of elements.
func (a *Array) Size() int { return a.NBytes() / max(1, a.DType().Size()) }

// DType is the element type.
func (a *Array) DType() DType {
	a.describe()
	return a.dtype
}

// NBytes is the bytes of the elements.
func (a *Array) NBytes() int {
	a.describe()
	return a.nbytes
}

// Inert tells whether the array stands for the result of a failed operation.
func (a *Array) Inert() bool { return a == inert }

// String is for messages: "bfloat16[2 3]".
func (a *Array) String() string {
	if a == nil || (a.ctx == nil && !a.known) {
		return "closed"
	}
	if a == inert {
		return "inert"
	}
	return fmt.Sprintf("%s%v", a.DType(), a.Shape())
}

// Close frees the handle, kept or not. A second Close, or one of an inert or nil array, does nothing.
func (a *Array) Close() {
	if a == nil || a.ctx == nil {
		return
	}
	s := a.scope
	a.disown()
	p := a.ctx
	a.ctx = nil
	live.Add(-1)
	if C.cx_free_arrays(&p, 1) != 0 {
		if msg := takeMessage(); s != nil {
			_ = s.Fail(&OpError{Op: "free", Message: msg})
		}
	}
}

// Element is a Go type that holds one element of an array.
type Element interface {
	bool | uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64 | F16 | float32 | float64 | BF16 | complex64
}

// DTypeOf is the element type that T carries.
func DTypeOf[T Element]() DType {
	var z T
	switch any(z).(type) {
	case bool:
		return Bool
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case F16:
		return Float16
	case float32:
		return Float32
	case float64:
		return Float64
	case BF16:
		return BFloat16
	}
	return Complex64
}

// FromSlice copies data into a new array. Without a shape it has one dimension.
func FromSlice[T Element](s *Scope, data []T, shape ...int) *Array {
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	var b []byte
	if len(data) > 0 {
		b = unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), len(data)*int(unsafe.Sizeof(data[0])))
	}
	return FromBytes(s, DTypeOf[T](), shape, b)
}

// FromBytes copies elements in memory order, little-endian, into a new array.
func FromBytes(s *Scope, dtype DType, shape []int, data []byte) *Array {
	if !s.usable("from_bytes") {
		return inert
	}
	n, err := byteCount(dtype, shape)
	if err == nil && n != len(data) {
		err = fmt.Errorf("%s%v takes %d bytes, %d given", dtype, shape, n, len(data))
	}
	if err != nil {
		_ = s.Fail(&OpError{Op: "from_bytes", Message: err.Error()})
		return inert
	}
	if err == nil {
		err = checkRoom("from_bytes", n)
	}
	if err != nil {
		_ = s.Fail(err)
		return inert
	}
	if n == 0 {
		data = make([]byte, 1) // MLX wants an address also for nothing
	}
	// A typed pointer: behind an unsafe.Pointer cgo would examine the whole object that data is part of.
	p := (*C.uint8_t)(unsafe.Pointer(&data[0]))
	return s.one("from_bytes", C.cx_array_from_data(p, s.ints(0, shape), C.int(len(shape)), C.mlx_dtype(dtype)))
}

// byteCount is dtype x shape with every overflow an error.
func byteCount(dtype DType, shape []int) (int, error) {
	if !dtype.Valid() {
		return 0, fmt.Errorf("%s is no dtype", dtype)
	}
	n := dtype.Size()
	if len(shape) > maxDims {
		return 0, fmt.Errorf("%d dimensions, more than %d", len(shape), maxDims)
	}
	for _, d := range shape {
		if d < 0 || d != int(int32(d)) {
			return 0, fmt.Errorf("shape %v: size %d is out of range", shape, d)
		}
		if d != 0 && n > (1<<62)/d {
			return 0, fmt.Errorf("shape %v: too large", shape)
		}
		n *= d
	}
	return n, nil
}

// view evaluates a and calls use with its elements in row-major order; the bytes are valid only inside use.
func (s *Scope) view(op string, a *Array, use func([]byte)) error {
	if !s.usable(op) || !s.have(op, a) {
		return s.fail.err
	}
	if s.w.Poisoned() > 0 {
		return s.Fail(&OpError{Op: op, Message: errPoisoned.Error()})
	}
	if err := s.Eval(a); err != nil {
		return err
	}
	var rows C.bool
	if C.cx_row_contiguous(a.ctx, &rows) != 0 {
		s.failOp(op, a)
		return s.fail.err
	}
	if !bool(rows) {
		c := s.Contiguous(a, false)
		if err := s.Eval(c); err != nil {
			return err
		}
		defer c.Close()
		a = c
	}
	n := a.NBytes()
	if n == 0 {
		use(nil)
		return s.fail.err
	}
	p := C.cx_mlx_array_data_uint8(C.mlx_array{ctx: a.ctx})
	if p == nil {
		s.failOp(op, a)
		return s.fail.err
	}
	use(unsafe.Slice((*byte)(unsafe.Pointer(p)), n))
	return nil
}

// Bytes evaluates a and copies its elements out, row-major, little-endian.
func Bytes(s *Scope, a *Array) ([]byte, error) {
	var out []byte
	err := s.view("bytes", a, func(b []byte) { out = slices.Clone(b) })
	return out, err
}

// ToSlice evaluates a and copies its elements out in row-major order. T must be the array's own type: nothing is cast.
func ToSlice[T Element](s *Scope, a *Array) ([]T, error) {
	var out []T
	if s.usable("to_slice") && s.have("to_slice", a) && a.DType() != DTypeOf[T]() {
		return nil, s.Fail(&OpError{Op: "to_slice", Shapes: [][]int{a.Shape()}, Message: fmt.Sprintf("a %s array cannot be read as %s: use AsType first", a.DType(), DTypeOf[T]())})
	}
	err := s.view("to_slice", a, func(b []byte) {
		var z T
		out = make([]T, len(b)/int(unsafe.Sizeof(z)))
		if len(out) > 0 {
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), len(b)), b)
		}
	})
	return out, err
}

// Item evaluates an array of one element and returns it.
func Item[T Element](s *Scope, a *Array) (T, error) {
	var z T
	v, err := ToSlice[T](s, a)
	if err != nil {
		return z, err
	}
	if len(v) != 1 {
		return z, s.Fail(&OpError{Op: "item", Shapes: [][]int{a.Shape()}, Message: "not one element"})
	}
	return v[0], nil
}

// Empty is an evaluated array of zeros together with its own memory, so that a reader can fill it before its first use.
// The bytes are valid while the array lives, and must not be written once an operation has taken the array as input.
func (s *Scope) Empty(dtype DType, shape ...int) (*Array, []byte, error) {
	if !s.usable("empty") {
		return inert, nil, s.fail.err
	}
	n, err := byteCount(dtype, shape)
	if err != nil {
		return inert, nil, s.Fail(&OpError{Op: "empty", Message: err.Error()})
	}
	if err := checkRoom("empty", n); err != nil {
		return inert, nil, s.Fail(err)
	}
	host := s.child(s.w.cpu)
	defer host.Close()
	a := s.Adopt(host.Zeros(shape, dtype))
	if err := s.Eval(a); err != nil {
		return inert, nil, err
	}
	if n == 0 {
		return a, nil, nil
	}
	p := C.cx_mlx_array_data_uint8(C.mlx_array{ctx: a.ctx})
	if p == nil {
		s.failOp("empty", a)
		return inert, nil, s.fail.err
	}
	return a, unsafe.Slice((*byte)(unsafe.Pointer(p)), n), nil
}
