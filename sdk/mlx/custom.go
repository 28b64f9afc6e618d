package mlx

// #include <stdlib.h>
// #include "custom.h"
// #cgo noescape custom_apply
// #cgo nocallback custom_apply
import "C"

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/clademl/clade/sdk/contract"
)

// Source is a kernel for GPUs as source text, in CUDA or in Metal as the runtime's GPU is. Body stands within a function that MLX writes
// around it: inputs are pointers of their names, NAME_shape their shapes where the text has that word, the output a pointer, and constants
// are types and integers known when it is compiled. Header stands before the function.
type Source struct {
	Name         string // a C identifier
	Inputs       []string
	Output       string
	Types, Ints  []string // names of the constants
	Header, Body string
}

// SourceKernel is a Source that a runtime has taken. MLX compiles it when a call with new constants is first evaluated, and keeps what it
// compiled for CUDA on disk ($MLX_PTX_CACHE_DIR). It lives as long as the process: MLX's graphs share its text.
type SourceKernel struct {
	name          string
	metal         bool
	inputs        int
	types, ints   int
	ctx           unsafe.Pointer
	constantNames unsafe.Pointer // zero-terminated, one behind the other
}

// NewSource takes a kernel for the runtime's GPU. Nothing is compiled yet.
func (r *Runtime) NewSource(src Source) (*SourceKernel, error) {
	if !r.HasGPU() {
		return nil, contract.Errorf(contract.UnsupportedOption, src.Name, "the runtime %s has no GPU", r.manifest.Variant)
	}
	constants := slices.Concat(src.Types, src.Ints)
	for _, text := range slices.Concat([]string{src.Name, src.Output, src.Header, src.Body}, src.Inputs, constants) {
		// MLX quotes text in the compiler's messages, which mlx-c passes to printf as the format.
		if strings.ContainsAny(text, "%\x00") {
			return nil, contract.Errorf(contract.Internal, src.Name, "the source holds a percent sign or a zero")
		}
	}
	k := &SourceKernel{name: src.Name, metal: r.metal(), inputs: len(src.Inputs), types: len(src.Types), ints: len(src.Ints)}
	var held []unsafe.Pointer
	text := func(s ...string) *C.char {
		p := C.CString(strings.Join(s, "\x00"))
		held = append(held, unsafe.Pointer(p))
		return p
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	k.ctx = C.custom_new(C.bool(k.metal), text(src.Name), text(src.Inputs...), C.int(k.inputs), text(src.Output), text(src.Header), text(src.Body))
	for _, p := range held {
		C.free(p)
	}
	if k.ctx == nil {
		return nil, contract.Errorf(contract.Internal, src.Name, "%s", takeMessage())
	}
	k.constantNames = unsafe.Pointer(C.CString(strings.Join(constants, "\x00")))
	return k, nil
}

// metal tells Apple's GPUs from NVIDIA's.
func (r *Runtime) metal() bool {
	for _, d := range r.devices {
		if d.Kind == GPU {
			return strings.HasPrefix(d.Name, "metal-")
		}
	}
	return false
}

// Launch is one call of a SourceKernel: its output, its constants in the Source's order, and its threads.
type Launch struct {
	DType       DType
	Shape       []int
	Types       []DType
	Ints        []int
	Grid, Group [3]int // in threads; the grid is whole groups
}

// Source builds the call of a kernel on arrays, which it sees in row-major order. It runs on a GPU's worker only.
func (s *Scope) Source(k *SourceKernel, l Launch, in ...*Array) *Array {
	if !s.usable(k.name) || !s.have(k.name, in...) {
		return inert
	}
	if len(in) != k.inputs || len(l.Types) != k.types || len(l.Ints) != k.ints || k.types+k.ints == 0 {
		_ = s.Fail(&OpError{Op: k.name, Message: fmt.Sprintf("%d arrays, %d types and %d numbers, want %d, %d and %d", len(in), len(l.Types), len(l.Ints), k.inputs, k.types, k.ints)})
		return inert
	}
	var launch [6]C.int
	for i := range 3 {
		if l.Group[i] < 1 || l.Grid[i] < 1 || l.Grid[i]%l.Group[i] != 0 {
			_ = s.Fail(&OpError{Op: k.name, Message: fmt.Sprintf("a grid of %v threads in groups of %v", l.Grid, l.Group)})
			return inert
		}
		launch[i], launch[3+i] = s.cint(l.Grid[i]), s.cint(l.Group[i])
	}
	values := make([]C.int, 0, k.types+k.ints)
	for _, t := range l.Types {
		values = append(values, C.int(t))
	}
	for _, v := range l.Ints {
		values = append(values, s.cint(v))
	}
	shape := s.ints(0, l.Shape)
	if s.fail.err != nil {
		return inert
	}
	out := C.custom_apply(C.bool(k.metal), k.ctx, s.pointers(0, in), C.size_t(len(in)), shape, C.int(len(l.Shape)), C.mlx_dtype(l.DType), &launch[0],
		(*C.char)(k.constantNames), &values[0], C.int(k.types), C.int(k.ints), s.stream)
	return s.one(k.name, out, in...)
}
