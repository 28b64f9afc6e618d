package mlx

// #include "kernels_shim.h"
// #cgo nocallback ck_attend_rows
import "C"

import (
	"fmt"
	"unsafe"
)

// PackedSequence is one sequence among those of an attention: its tokens in the projections, and its cache
// [1, KVHeads, capacity, HeadDim] before them.
type PackedSequence struct {
	Keys, Values   *Array
	Offset, Tokens int
}

// AttendsRows reports whether the library has PackedAttendRows, for n sequences.
func AttendsRows(n int) bool { return bool(C.ck_attends_rows()) && n <= C.CK_MAX_SEQUENCES }

// PackedAttendRows is PackedAttend of several sequences in one operation: their tokens lie one after another in qkv
// [1, T, (Heads + 2 KVHeads) HeadDim], and no two share a cache. a.Offset is not read. It returns the result [1, T, Heads HeadDim]
// and each sequence with its caches as they are after it; the given handles must not be used again. Each sequence has the bits that it has
// alone. The kernel "attend-rows" of the library.
func (s *Scope) PackedAttendRows(qkv *Array, sequences []PackedSequence, a PackedAttention) (*Array, []PackedSequence) {
	const op = "packed_attend_rows"
	out := make([]PackedSequence, len(sequences))
	fail := func() (*Array, []PackedSequence) {
		for i := range out {
			out[i] = PackedSequence{Keys: inert, Values: inert}
		}
		return inert, out
	}
	if !s.usable(op) || !s.have(op, qkv) || !s.haveOrNil(op, a.InvFreq, a.QNorm, a.KNorm) {
		return fail()
	}
	n := len(sequences)
	if n < 1 || n > C.CK_MAX_SEQUENCES || a.Softcap != 0 || a.Latent {
		_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("%d sequences, a softcap of %g", n, a.Softcap)})
		return fail()
	}
	caches, made := make([]unsafe.Pointer, 2*n), make([]unsafe.Pointer, 2*n)
	offsets, rows := make([]C.int, n), make([]C.int, n)
	for i, q := range sequences {
		if !s.have(op, q.Keys, q.Values) {
			return fail()
		}
		caches[2*i], caches[2*i+1] = q.Keys.ctx, q.Values.ctx
		offsets[i], rows[i] = C.int(q.Offset), C.int(q.Tokens)
	}
	var result unsafe.Pointer
	if C.ck_attend_rows(&result, &made[0], qkv.ctx, &caches[0], C.int(n), &offsets[0], &rows[0], a.InvFreq.handle(), a.QNorm.handle(),
		a.KNorm.handle(), a.c(0), s.stream) != 0 {
		s.failOp(op, qkv)
		return fail()
	}
	for i, q := range sequences {
		out[i] = PackedSequence{Keys: s.add(made[2*i]), Values: s.add(made[2*i+1]), Offset: q.Offset + q.Tokens}
	}
	return s.add(result), out
}

// c is the description that the library reads.
func (a PackedAttention) c(offset int) C.ck_attention {
	return C.ck_attention{
		heads: C.int(a.Heads), kv_heads: C.int(a.KVHeads), head_dim: C.int(a.HeadDim),
		rope_dims: C.int(a.RopeDims), rope_traditional: C.bool(a.RopeTraditional),
		rope_scale: C.float(a.RopeScale), rope_mscale: C.float(a.RopeMScale),
		scale: C.float(a.Scale), offset: C.int(offset), window: C.int(a.Window), norm_eps: C.float(a.NormEps),
	}
}
