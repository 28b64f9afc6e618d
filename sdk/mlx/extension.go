package mlx

// #include <stdlib.h>
// #include "extension.h"
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/clademl/clade/sdk/contract"
)

// maxExtensionInputs is the most arrays and numbers that an operation of an extension takes.
const maxExtensionInputs = 16

// Extension is a library of a plugin's own: operations on MLX arrays, built against the runtime that is loaded. It stays loaded
// until the process ends.
type Extension struct {
	path string
	lib  unsafe.Pointer
}

// OpenExtension loads the library at an absolute path, after the runtime. Whoever calls has checked whose it is. extension.h has the
// type of an operation.
func (r *Runtime) OpenExtension(path string) (*Extension, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	lib := C.ext_open(cpath)
	if lib == nil {
		return nil, contract.Errorf(contract.PluginMismatch, path, "%s", takeMessage())
	}
	return &Extension{path: path, lib: lib}, nil
}

// Operation is one function of an extension.
type Operation struct {
	name string
	op   unsafe.Pointer
}

// Operation finds a function by its name.
func (e *Extension) Operation(name string) (*Operation, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	op := C.ext_find(e.lib, cname)
	if op == nil {
		return nil, contract.Errorf(contract.PluginMismatch, e.path, "%s", takeMessage())
	}
	return &Operation{name: name, op: op}, nil
}

// Call builds the operation on arrays and numbers.
func (s *Scope) Call(o *Operation, params []float64, in ...*Array) *Array {
	if !s.usable(o.name) || !s.have(o.name, in...) {
		return inert
	}
	if len(in) == 0 || len(in) > maxExtensionInputs || len(params) > maxExtensionInputs {
		_ = s.Fail(&OpError{Op: o.name, Message: fmt.Sprintf("%d arrays and %d numbers", len(in), len(params))})
		return inert
	}
	var arrays [maxExtensionInputs]unsafe.Pointer
	var numbers [maxExtensionInputs]C.double
	for i, a := range in {
		arrays[i] = a.ctx
	}
	for i, v := range params {
		numbers[i] = C.double(v)
	}
	out := C.ext_call(o.op, &arrays[0], C.size_t(len(in)), &numbers[0], C.size_t(len(params)), s.stream)
	return s.one(o.name, out, in...)
}
