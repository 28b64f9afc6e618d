package mlx

// #include "kernels_shim.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// PackedChain is what stands between two attentions of a decoder: h + O o, the gated MLP of that added to it, and the sum through the
// next layer's matrices, side by side.
type PackedChain struct {
	O, Gate, Up, Down *Packed
	Act               Gate
	MLPNorm           *Array // [hidden], of the MLP's input
	Next              []*Packed
	NextNorm          *Array // [hidden], of the next layer's input; nil without Next
	Eps               float32
}

// Chains reports whether the library has PackedChain: its kernel "linear-chain".
func Chains() bool { return bool(C.ck_chains()) }

// PackedChain maps o [.., in] and h [.., hidden] to the sum [.., hidden] and, where there is a next layer, its products [.., sum of
// rows], else nil. Both have the bits of four PackedLinear.
func (s *Scope) PackedChain(o, h *Array, c PackedChain) (sum, projected *Array) {
	const op = "packed_chain"
	if !s.usable(op) || !s.have(op, o) || !s.have(op, h) || !s.have(op, c.MLPNorm) || !s.haveOrNil(op, c.NextNorm) {
		return inert, inert
	}
	if len(c.Next) > C.CK_MAX_WEIGHTS {
		_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("%d weights", len(c.Next))})
		return inert, inert
	}
	var all [4 + C.CK_MAX_WEIGHTS]unsafe.Pointer
	for i, w := range append([]*Packed{c.O, c.Gate, c.Up, c.Down}, c.Next...) {
		if w == nil || w.ctx == nil {
			_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("weight %d is closed", i)})
			return inert, inert
		}
		all[i] = w.ctx
	}
	two := C.ck_linear_chain(o.ctx, h.ctx, &all[0], C.int(c.Act), c.MLPNorm.handle(), &all[4], C.int(len(c.Next)), c.NextNorm.handle(),
		C.float(c.Eps), s.stream)
	if two.rc != 0 {
		s.failOp(op, o, h)
		return inert, inert
	}
	if sum = s.add(two.out); len(c.Next) > 0 {
		projected = s.add(two.projected)
	}
	return sum, projected
}
