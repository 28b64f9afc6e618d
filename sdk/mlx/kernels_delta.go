package mlx

// #include "kernels_shim.h"
// #cgo nocallback ck_gated_delta
import "C"

import "unsafe"

// GatedDelta is a gated delta network behind its projections: a causal convolution with SiLU, queries and keys of a length, decay and
// rate of each token, the recurrence, and the gated norm of what it gives.
type GatedDelta struct {
	KeyHeads, ValueHeads, KeyDim, ValueDim, Taps int

	Conv           *Array // [Taps, channels], of the projections' dtype
	ALog, DtBias   *Array // [ValueHeads], of any float dtype
	Norm           *Array // [ValueDim], of the projections' dtype
	Eps, LengthEps float32
}

// Recurrent is a sequence among those of a GatedDelta: its tokens in the projections, and what is left of those before them.
type Recurrent struct {
	Tokens int
	// History [1, Taps-1, channels] has the convolution's last inputs, State [1, ValueHeads, KeyDim, ValueDim] is float32.
	History, State *Array
	// InPlace lets the state's memory be written: nothing else holds it, and its handle is not used again.
	InPlace bool
	// Keep lists, ascending, behind how many of its tokens, at least one and not all, History and State come back too.
	Keep []int
}

// Recurs reports whether the library has GatedDelta.
func Recurs() bool { return bool(C.ck_recurs()) }

// GatedDelta maps projections [1, T, channels + ValueHeads*ValueDim + 2 ValueHeads] of all sequences, one after another, to
// [1, T, ValueHeads*ValueDim], and returns for each sequence History and State behind each of Keep and behind its last token. A token's
// bits depend on those before it in its sequence alone. The kernel "gated-delta" of the library.
func (s *Scope) GatedDelta(x *Array, sequences []Recurrent, d GatedDelta) (*Array, [][][2]*Array) {
	const op = "gated_delta"
	out := make([][][2]*Array, len(sequences))
	fail := func() (*Array, [][][2]*Array) {
		for i, q := range sequences {
			out[i] = nil
			for range len(q.Keep) + 1 {
				out[i] = append(out[i], [2]*Array{inert, inert})
			}
		}
		return inert, out
	}
	if !s.usable(op) || !s.have(op, x, d.Conv, d.ALog, d.DtBias, d.Norm) {
		return fail()
	}
	if len(sequences) == 0 {
		_ = s.Fail(&OpError{Op: op, Message: "no sequence"})
		return fail()
	}
	states, kept, pairs := make([]unsafe.Pointer, 2*len(sequences)), []C.int{0}, 0
	described := make([]C.ck_recurrent, len(sequences))
	for i, q := range sequences {
		if !s.have(op, q.History, q.State) {
			return fail()
		}
		states[2*i], states[2*i+1] = q.History.ctx, q.State.ctx
		described[i] = C.ck_recurrent{rows: C.int(q.Tokens), in_place: C.bool(q.InPlace), kept: C.int(len(kept)), count: C.int(len(q.Keep))}
		for _, n := range q.Keep {
			kept = append(kept, C.int(n))
		}
		pairs += len(q.Keep) + 1
	}
	made := make([]unsafe.Pointer, 2*pairs)
	var result unsafe.Pointer
	if C.ck_gated_delta(&result, &made[0], x.ctx, &states[0], C.int(len(described)), &described[0], &kept[0],
		d.Conv.ctx, d.ALog.ctx, d.DtBias.ctx, d.Norm.ctx, d.c(), s.stream) != 0 {
		s.failOp(op, x)
		return fail()
	}
	next := 0
	for i, q := range sequences {
		for range len(q.Keep) + 1 {
			out[i] = append(out[i], [2]*Array{s.add(made[next]), s.add(made[next+1])})
			next += 2
		}
	}
	return s.add(result), out
}

func (d GatedDelta) c() C.ck_delta {
	return C.ck_delta{
		key_heads: C.int(d.KeyHeads), value_heads: C.int(d.ValueHeads), key_dim: C.int(d.KeyDim), value_dim: C.int(d.ValueDim),
		taps: C.int(d.Taps), norm_eps: C.float(d.Eps), length_eps: C.float(d.LengthEps),
	}
}
