package mlx

// #include "kernels_shim.h"
// #cgo nocallback ck_experts
import "C"

// PackedExperts is a mixture of gated MLPs over packed weights: Gate and Up [Experts * width, Cols], Down [Experts * Cols, width] hold
// every expert's rows one after another; both widths are multiples of 16.
type PackedExperts struct {
	Gate, Up, Down *Packed
	Experts, TopK  int
	// Normalize makes the picked probabilities sum to 1.
	Normalize bool
	Residual  *Array // added to the result, or nil
}

// PackedExperts routes each row of x [.., Cols] to the TopK experts that the softmax of its logits [.., Experts] finds likeliest, of
// equals to those with the higher number, as ArgPartition does, and sums their results by their probabilities. A row's bits do not
// depend on the others. The kernel "experts" of the library.
func (s *Scope) PackedExperts(x, logits *Array, e PackedExperts) *Array {
	const op = "packed_experts"
	if !s.usable(op) || !s.have(op, x, logits) || !s.haveOrNil(op, e.Residual) {
		return inert
	}
	for _, w := range []*Packed{e.Gate, e.Up, e.Down} {
		if w == nil || w.ctx == nil {
			_ = s.Fail(&OpError{Op: op, Message: "a weight is closed"})
			return inert
		}
	}
	o := C.ck_experts(x.ctx, logits.ctx, e.Gate.ctx, e.Up.ctx, e.Down.ctx, C.int(e.Experts), C.int(e.TopK), C.bool(e.Normalize),
		e.Residual.handle(), s.stream)
	return s.one(op, o, x, logits)
}

// Mixes reports whether the library has PackedMixture: its kernel "mixture".
func Mixes() bool { return bool(C.ck_mixes()) }

// PackedMixture is h and PackedExperts of norm(h), whose logits are norm(h) through router: one operation with the bits of the norm in
// PackedLinear, PackedLinear and PackedExperts. e.Residual is not read: h is it.
func (s *Scope) PackedMixture(h, norm *Array, eps float32, router *Packed, e PackedExperts) *Array {
	const op = "packed_mixture"
	if !s.usable(op) || !s.have(op, h, norm) {
		return inert
	}
	for _, w := range []*Packed{router, e.Gate, e.Up, e.Down} {
		if w == nil || w.ctx == nil {
			_ = s.Fail(&OpError{Op: op, Message: "a weight is closed"})
			return inert
		}
	}
	o := C.ck_mixture(h.ctx, norm.ctx, C.float(eps), router.ctx, e.Gate.ctx, e.Up.ctx, e.Down.ctx, C.int(e.Experts), C.int(e.TopK),
		C.bool(e.Normalize), s.stream)
	return s.one(op, o, h, norm)
}
