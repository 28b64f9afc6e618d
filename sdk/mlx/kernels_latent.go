package mlx

// #include "kernels_shim.h"
// #cgo nocallback ck_head_linear
import "C"

// AttendsLatent reports whether the library has the kernels of latents: AttendCaches takes a Latent, and HeadLinear is there.
func AttendsLatent() bool { return bool(C.ck_attends_latent()) }

// HeadLinear takes each head of x [1, T, heads * width] through a matrix of its own: its columns from `from` on times w
// [heads, in, out] is [1, T, heads * out]. out is a multiple of 16. A row's bits do not depend on the others. The kernel "head-linear"
// of the library.
func (s *Scope) HeadLinear(x, w *Array, from int) *Array {
	const op = "head_linear"
	if !s.usable(op) || !s.have(op, x, w) {
		return inert
	}
	return s.one(op, C.ck_head_linear(x.ctx, w.ctx, C.int(from), s.stream), x, w)
}
