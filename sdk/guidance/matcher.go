package guidance

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/clademl/clade/sdk/contract"
)

// Constraint is what sdk/engine needs of a grammar at work. Mask may run while the device computes the logits that it is for:
// both follow from the token that was committed last. Its methods are called by one goroutine at a time.
type Constraint interface {
	// Mask sets the bits of the ids that may come next: bit id%32 of dst[id/32].
	Mask(dst []uint32) error
	// Commit tells the token that came.
	Commit(id int32) error
	// Done tells that the text is complete and nothing can follow it but its end.
	Done() bool
	// Rollback takes back the last n tokens that were committed.
	Rollback(n int) error
	// Clone is an independent copy in the same state.
	Clone() (Constraint, error)
	// Close frees it.
	Close()
}

// maxForced is the most tokens that Forced tells at once.
const maxForced = 256

// Matcher is one text under a grammar.
type Matcher struct {
	vocabulary *Vocabulary
	subject    string
	ptr        unsafe.Pointer
}

var _ Constraint = (*Matcher)(nil)

// Start compiles a grammar. What it cannot be held to is an error that names the field, for a schema with its JSON pointer.
func (v *Vocabulary) Start(g Grammar) (*Matcher, error) {
	ptr, problem := v.compile(g.kind, g.text)
	if problem != "" {
		if g.schema != nil {
			return nil, v.explain(g, problem)
		}
		return nil, contract.Errorf(contract.InvalidArgument, g.subject, "%s", problem)
	}
	v.users.Add(1)
	return &Matcher{vocabulary: v, subject: g.subject, ptr: ptr}, nil
}

// compile gives a matcher of llguidance, or its words.
func (v *Vocabulary) compile(kind, text string) (ptr unsafe.Pointer, problem string) {
	ckind, ctext := C.CString(kind), C.CString(text)
	defer C.free(unsafe.Pointer(ckind))
	defer C.free(unsafe.Pointer(ctext))
	ptr = C.cg_matcher(v.ptr, ckind, ctext, maxStates)
	runtime.KeepAlive(v)
	if ptr == nil {
		return nil, "there was no memory or no thread to compile it"
	}
	if message := C.cg_error(ptr); message != nil {
		problem = firstLine(C.GoString(message))
		C.cg_matcher_free(ptr)
		return nil, problem
	}
	return ptr, ""
}

// Mask sets the bits of the ids that may come next; dst has the vocabulary's Words.
func (m *Matcher) Mask(dst []uint32) error {
	if len(dst) != m.vocabulary.Words() {
		return contract.Errorf(contract.Internal, "constraint", "a mask of %d words, the vocabulary's has %d", len(dst), m.vocabulary.Words())
	}
	return m.check(C.cg_mask(m.ptr, (*C.uint32_t)(&dst[0]), C.size_t(4*len(dst))))
}

// Commit tells the tokens that came, in order.
func (m *Matcher) Commit(id int32) error {
	one := C.uint32_t(id)
	return m.check(C.cg_commit(m.ptr, &one, 1))
}

// Done tells that the text is complete and nothing can follow it but its end.
func (m *Matcher) Done() bool { return bool(C.cg_stopped(m.ptr)) && C.cg_error(m.ptr) == nil }

// Accepting tells that the text may end here.
func (m *Matcher) Accepting() bool { return bool(C.cg_accepting(m.ptr)) }

// Rollback takes back the last n tokens.
func (m *Matcher) Rollback(n int) error { return m.check(C.cg_rollback(m.ptr, C.size_t(n))) }

// Forced are tokens that the grammar leaves no choice of, spelled as the tokenizer spells them; often none. They are not
// committed.
func (m *Matcher) Forced() ([]int32, error) {
	var ids [maxForced]C.uint32_t
	n := C.cg_forced(m.ptr, &ids[0], maxForced)
	if err := m.check(min(n, 0)); err != nil {
		return nil, err
	}
	out := make([]int32, 0, n)
	for _, id := range ids[:n] {
		out = append(out, int32(id))
	}
	return out, nil
}

// Valid is how many of ids the grammar takes from here, whatever their spelling. Nothing is committed.
func (m *Matcher) Valid(ids []int32) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	n := C.cg_valid(m.ptr, (*C.uint32_t)(unsafe.Pointer(&ids[0])), C.size_t(len(ids)))
	return int(n), m.check(min(n, 0))
}

// Clone is an independent copy in the same state.
func (m *Matcher) Clone() (Constraint, error) {
	ptr := C.cg_matcher_clone(m.ptr)
	if ptr == nil {
		return nil, contract.Errorf(contract.Internal, m.subject, "its state could not be copied")
	}
	m.vocabulary.users.Add(1)
	return &Matcher{vocabulary: m.vocabulary, subject: m.subject, ptr: ptr}, nil
}

// Close frees the matcher.
func (m *Matcher) Close() {
	if m == nil || m.ptr == nil {
		return
	}
	C.cg_matcher_free(m.ptr)
	m.ptr = nil
	m.vocabulary.users.Add(-1)
}

// check turns a result into an error with llguidance's words. After one the matcher stays broken.
func (m *Matcher) check(rc C.int) error {
	if rc >= 0 {
		return nil
	}
	problem := "no reason was given"
	if message := C.cg_error(m.ptr); message != nil {
		problem = firstLine(C.GoString(message))
	}
	return contract.Errorf(contract.InvalidArgument, m.subject, "the grammar cannot be followed: %s", problem)
}

// problem compiles a grammar for llguidance's words alone.
func (v *Vocabulary) problem(g Grammar) string {
	ptr, problem := v.compile(g.kind, g.text)
	if problem == "" {
		C.cg_matcher_free(ptr)
	}
	return problem
}
