package mlx

// #include "shim.h"
// #cgo noescape cx_free_arrays
// #cgo nocallback cx_free_arrays
// #cgo nocallback cx_eval
// #cgo noescape cx_eval
// #cgo nocallback cx_vector_get
// #cgo nocallback cx_vector_free
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// live counts the array handles that nobody has freed yet.
var live atomic.Int64

// LiveHandles is the number of array handles not yet freed in this process. Tests end with it at zero.
func LiveHandles() int64 { return live.Load() }

// Scope owns the arrays made in it and holds the first error. It is used on its worker's thread only.
type Scope struct {
	w      *Worker
	stream unsafe.Pointer
	fail   *failure // shared with parents and children
	arrays []*Array
	closed bool

	parent   *Scope
	children []*Scope
	index    int    // in parent.children
	op       string // the operation being built, for messages

	scalar [8]byte
	intBuf [4][]C.int
	ptrBuf [2][]unsafe.Pointer
}

type failure struct{ err error }

func newScope(w *Worker, stream unsafe.Pointer, f *failure) *Scope {
	return &Scope{w: w, stream: stream, fail: f}
}

// Err is the first error of this scope, its parents and its children.
func (s *Scope) Err() error { return s.fail.err }

// Fail records err, unless an earlier one is held, and returns what is held. Model code reports its own checks with it.
func (s *Scope) Fail(err error) error {
	if s.fail.err == nil {
		s.fail.err = err
	}
	return s.fail.err
}

// Child is a scope within s: same thread, same first error, its own arrays. Close it when its intermediates are done.
// It ends with s at the latest.
func (s *Scope) Child() *Scope { return s.child(s.stream) }

// Apart is a child with a first error of its own: what is built in it may fail without failing s. Arrays that s goes on with are
// adopted by it.
func (s *Scope) Apart() *Scope {
	c := s.child(s.stream)
	c.fail = &failure{}
	return c
}

func (s *Scope) child(stream unsafe.Pointer) *Scope {
	c := newScope(s.w, stream, s.fail)
	if s.closed { // a child of a closed scope would never be freed
		c.closed = true
		return c
	}
	c.parent, c.index = s, len(s.children)
	s.children = append(s.children, c)
	return c
}

// Close frees every array that the scope and its children still own. A second Close does nothing.
func (s *Scope) Close() {
	if s.closed {
		return
	}
	for len(s.children) > 0 {
		s.children[len(s.children)-1].Close()
	}
	s.Sweep()
	s.closed = true
	if p := s.parent; p != nil {
		last := p.children[len(p.children)-1]
		p.children[s.index], last.index = last, s.index
		p.children[len(p.children)-1] = nil
		p.children = p.children[:len(p.children)-1]
		s.parent = nil
	}
}

// Sweep frees the scope's arrays except those given. Done before Eval it lets the evaluation free intermediates as it goes:
// a handle that still lives keeps the memory of its result.
func (s *Scope) Sweep(except ...*Array) {
	var kept []*Array
	for _, a := range except {
		if a != nil && a.scope == s {
			a.scope = nil
			kept = append(kept, a)
		}
	}
	ptrs := s.ptrBuf[0][:0]
	for _, a := range s.arrays {
		if a.scope == s {
			ptrs = append(ptrs, a.ctx)
			a.ctx, a.scope = nil, nil
		}
	}
	s.ptrBuf[0] = ptrs
	if len(ptrs) > 0 {
		live.Add(-int64(len(ptrs)))
		if C.cx_free_arrays(&ptrs[0], C.size_t(len(ptrs))) != 0 {
			_ = s.Fail(&OpError{Op: "free", Message: takeMessage()})
		}
		clear(ptrs)
	}
	clear(s.arrays)
	s.arrays = s.arrays[:0]
	for _, a := range kept {
		s.own(a)
	}
}

// own makes s the owner of a.
func (s *Scope) own(a *Array) {
	a.scope, a.index = s, len(s.arrays)
	s.arrays = append(s.arrays, a)
}

// disown takes a off its owner's list.
func (a *Array) disown() {
	s := a.scope
	if s == nil {
		return
	}
	last := len(s.arrays) - 1
	moved := s.arrays[last]
	s.arrays[a.index], moved.index = moved, a.index
	s.arrays[last] = nil
	s.arrays = s.arrays[:last]
	a.scope = nil
}

// Keep moves a out of its scope: from now on the caller frees it with Close, on the worker's thread. An inert array stays
// inert. Closing the scope then leaves a alone.
func (s *Scope) Keep(a *Array) *Array {
	if a != nil && a != inert {
		a.disown()
	}
	return a
}

// Adopt moves a, kept or owned by another scope of the worker, into s.
func (s *Scope) Adopt(a *Array) *Array {
	if a == nil || a == inert || a.ctx == nil {
		return a
	}
	a.disown()
	s.own(a)
	return a
}

// Alias is a second handle on the same array, owned by s.
func (s *Scope) Alias(a *Array) *Array {
	if !s.usable("alias") || !s.have("alias", a) {
		return inert
	}
	return s.one("alias", C.cx_retain(a.ctx), a)
}

// usable tells whether the scope can take another operation.
func (s *Scope) usable(op string) bool {
	if s.fail.err != nil {
		return false
	}
	if s.closed {
		_ = s.Fail(&OpError{Op: op, Message: "the scope is closed"})
		return false
	}
	s.op = op
	return true
}

func (s *Scope) have(op string, in ...*Array) bool {
	for i, a := range in {
		if a == nil || a.ctx == nil {
			what := "nil"
			if a != nil {
				what = "closed"
			}
			_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("input %d is %s", i, what)})
			return false
		}
	}
	return true
}

// haveOrNil lets inputs be nil where MLX takes none; a closed array is no nil.
func (s *Scope) haveOrNil(op string, in ...*Array) bool {
	for _, a := range in {
		if a != nil && !s.have(op, a) {
			return false
		}
	}
	return true
}

func (s *Scope) failOp(op string, in ...*Array) {
	e := &OpError{Op: op, Message: takeMessage()}
	for _, a := range in {
		if a != nil && a.ctx != nil {
			e.Shapes = append(e.Shapes, a.Shape())
		}
	}
	_ = s.Fail(e)
}

func (s *Scope) add(ctx unsafe.Pointer) *Array {
	live.Add(1)
	a := &Array{ctx: ctx}
	s.own(a)
	if s.fail.err != nil { // an argument did not fit: the result means nothing
		return inert
	}
	return a
}

func (s *Scope) one(op string, o C.cx_out, in ...*Array) *Array {
	if o.rc != 0 || o.ctx == nil {
		s.failOp(op, in...)
		return inert
	}
	return s.add(o.ctx)
}

func (s *Scope) two(op string, o C.cx_two, in ...*Array) (*Array, *Array) {
	if o.rc != 0 || o.a == nil || o.b == nil {
		s.failOp(op, in...)
		return inert, inert
	}
	return s.add(o.a), s.add(o.b)
}

func (s *Scope) many(op string, o C.cx_vec, in ...*Array) []*Array {
	if o.rc != 0 {
		s.failOp(op, in...)
		return nil
	}
	out := make([]*Array, o.n)
	for i := range out {
		out[i] = s.one(op, C.cx_vector_get(o.vec, C.size_t(i)))
	}
	if C.cx_vector_free(o.vec) != 0 {
		s.failOp(op)
	}
	return out
}

// cint narrows v to C's int; one that does not fit is an error of the scope.
func (s *Scope) cint(v int) C.int {
	if v != int(int32(v)) {
		_ = s.Fail(&OpError{Op: s.op, Message: fmt.Sprintf("%d does not fit MLX's 32-bit sizes", v)})
		return 0
	}
	return C.int(v)
}

// csize narrows v to C's size_t; a negative one is an error of the scope.
func (s *Scope) csize(v int) C.size_t {
	if v < 0 {
		_ = s.Fail(&OpError{Op: s.op, Message: fmt.Sprintf("%d is negative", v)})
		return 0
	}
	return C.size_t(v)
}

// ints copies a list into scratch slot i, so that an op with a shape allocates nothing.
func (s *Scope) ints(i int, v []int) *C.int {
	if i >= len(s.intBuf) {
		buf := make([]C.int, len(v)+1)
		for j, x := range v {
			buf[j] = s.cint(x)
		}
		return &buf[0]
	}
	buf := s.intBuf[i][:0]
	for _, x := range v {
		buf = append(buf, s.cint(x))
	}
	s.intBuf[i] = append(buf, 0) // never empty: MLX copies from the address even when the count is 0
	return &s.intBuf[i][0]
}

// pointers collects handles in scratch slot i.
func (s *Scope) pointers(i int, in []*Array) *unsafe.Pointer {
	buf := s.ptrBuf[i][:0]
	for _, a := range in {
		buf = append(buf, a.ctx)
	}
	s.ptrBuf[i] = append(buf, nil)
	return &s.ptrBuf[i][0]
}

// Eval computes the arrays and waits for them. It returns the scope's error when there is one already.
func (s *Scope) Eval(arrays ...*Array) error { return s.eval("eval", false, arrays) }

// AsyncEval starts computing the arrays and returns. A failure inside shows at the next evaluation: see Worker.Poisoned.
func (s *Scope) AsyncEval(arrays ...*Array) error { return s.eval("async_eval", true, arrays) }

func (s *Scope) eval(op string, async bool, arrays []*Array) error {
	if !s.usable(op) || !s.have(op, arrays...) || len(arrays) == 0 {
		return s.fail.err
	}
	if C.cx_eval(s.pointers(0, arrays), C.size_t(len(arrays)), C.bool(async)) != 0 {
		s.failOp(op, arrays...)
		s.w.poison()
	}
	return s.fail.err
}

// Synchronize waits for everything on the worker's stream. When it is clean the worker is no longer poisoned, and what is
// evaluated from then on can be trusted again; what was in flight before a failure cannot.
//
// It runs also in a scope that has failed, and then returns only its own error.
func (s *Scope) Synchronize() error {
	if s.closed {
		return &OpError{Op: "synchronize", Message: "the scope is closed"}
	}
	return s.w.synchronize()
}

// errPoisoned is why a read is refused.
var errPoisoned = errors.New("an earlier evaluation on this worker failed and its results are undefined; synchronize and compute them again")
