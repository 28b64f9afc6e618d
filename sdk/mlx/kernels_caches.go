package mlx

// #include "kernels_shim.h"
// #cgo nocallback ck_attend_softcap
// #cgo nocallback ck_attend_latent
import "C"

import (
	"fmt"
	"unsafe"
)

// RowCode is how the rows of a cache lie in memory: floats of the array's dtype, or 32-bit words (docs/kv.md).
type RowCode struct {
	Kind  RowKind
	Bits  int
	Group int // of affine rows: columns that share a scale
}

// RowKind is a kind of RowCode.
type RowKind int

// The kinds, as the library numbers them.
const (
	DenseRows RowKind = iota
	AffineRows
	TurboRows
)

func (c RowCode) c() C.ck_row_code {
	return C.ck_row_code{code: C.int(c.Kind), bits: C.int(c.Bits), group: C.int(c.Group)}
}

// CachePair is keys and values [1, KVHeads, n, width], of a float dtype or, where rows are coded, of uint32. A latent's has no Values.
type CachePair struct{ Keys, Values *Array }

// CacheSequence is one sequence among those of an AttendCaches: its tokens in the projections, and its cache before them.
type CacheSequence struct {
	Offset, Tokens     int
	KeyCode, ValueCode RowCode
	Pairs              []CachePair
	// Tiles says for each 256 positions, up to the last token's, in which pair they lie and from which of its rows on; a pair of
	// -1 is for those that no token sees.
	Tiles [][2]int32
	// Written is the first pair that the tokens are written to: from there on pairs come back.
	Written int
}

// AttendsCaches reports whether the library has AttendCaches and PackRows.
func AttendsCaches() bool { return bool(C.ck_attends_caches()) }

// AttendsSoftcap reports whether AttendCaches takes a Softcap: the kernel "attend-softcap" of the library.
func AttendsSoftcap() bool { return bool(C.ck_attends_softcap()) }

// AttendCaches is PackedAttendRows over caches that are coded or not in one piece. keep is how many first positions every query
// sees beside its window. It returns the result and, for each sequence, its written pairs as they are after it, in place of handles that
// must not be used again. The kernel "attend-caches" of the library.
func (s *Scope) AttendCaches(qkv *Array, sequences []CacheSequence, keep int, a PackedAttention) (*Array, [][]CachePair) {
	const op = "attend_caches"
	fail := func() (*Array, [][]CachePair) { return inert, inertCaches(sequences) }
	if !s.usable(op) || !s.have(op, qkv) || !s.haveOrNil(op, a.InvFreq, a.QNorm, a.KNorm) {
		return fail()
	}
	lent := lentCaches{latent: a.Latent}
	if !lent.add(s, op, sequences) {
		return fail()
	}
	if a.Latent && (keep > 0 || a.Softcap != 0 || a.QNorm != nil || a.KNorm != nil) {
		_ = s.Fail(&OpError{Op: op, Message: "of a latent, tokens beside a window, bent scores or norms of heads"})
		return fail()
	}
	if lent.empty() {
		_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("%d sequences with %d caches, of which %d are written", len(sequences), len(lent.caches), lent.written)})
		return fail()
	}
	made := make([]unsafe.Pointer, 2*lent.written)
	var result unsafe.Pointer
	var rc C.int
	if a.Latent {
		rc = C.ck_attend_latent(&result, &made[0], qkv.ctx, &lent.caches[0], C.int(len(lent.described)), &lent.described[0], &lent.tables[0], a.InvFreq.handle(),
			a.c(0), s.stream)
	} else {
		rc = C.ck_attend_softcap(&result, &made[0], qkv.ctx, &lent.caches[0], C.int(len(lent.described)), &lent.described[0], &lent.tables[0], C.int(keep),
			a.InvFreq.handle(), a.QNorm.handle(), a.KNorm.handle(), a.c(0), C.float(a.Softcap), s.stream)
	}
	if rc != 0 {
		s.failOp(op, qkv)
		return fail()
	}
	out, _ := s.writtenCaches(sequences, made)
	for _, pairs := range out {
		for i := range pairs {
			if a.Latent {
				pairs[i].Values = nil
			}
		}
	}
	return s.add(result), out
}

// lentCaches are sequences as the library reads them.
type lentCaches struct {
	described []C.ck_sequence
	caches    []unsafe.Pointer
	tables    []C.int
	written   int  // pairs that come back
	latent    bool // keys are values too
}

func (l *lentCaches) empty() bool { return len(l.caches) == 0 || len(l.tables) == 0 || l.written == 0 }

// add describes sequences behind those that are there.
func (l *lentCaches) add(s *Scope, op string, sequences []CacheSequence) bool {
	for _, q := range sequences {
		l.described = append(l.described, C.ck_sequence{
			offset: C.int(q.Offset), rows: C.int(q.Tokens), keys: q.KeyCode.c(), values: q.ValueCode.c(),
			pairs: C.int(len(q.Pairs)), written: C.int(q.Written), table: C.int(len(l.tables)), tiles: C.int(len(q.Tiles)),
		})
		for _, t := range q.Tiles {
			l.tables = append(l.tables, C.int(t[0]), C.int(t[1]))
		}
		for _, p := range q.Pairs {
			if l.latent {
				p.Values = p.Keys
			}
			if !s.have(op, p.Keys, p.Values) {
				return false
			}
			l.caches = append(l.caches, p.Keys.ctx, p.Values.ctx)
		}
		l.written += len(q.Pairs) - q.Written
	}
	return true
}

// writtenCaches takes over what came back for the sequences; rest is what came back for others.
func (s *Scope) writtenCaches(sequences []CacheSequence, made []unsafe.Pointer) (out [][]CachePair, rest []unsafe.Pointer) {
	out = make([][]CachePair, len(sequences))
	for i, q := range sequences {
		for range q.Pairs[q.Written:] {
			out[i] = append(out[i], CachePair{s.add(made[0]), s.add(made[1])})
			made = made[2:]
		}
	}
	return out, made
}

// inertCaches stand for what would have come back.
func inertCaches(sequences []CacheSequence) [][]CachePair {
	out := make([][]CachePair, len(sequences))
	for i, q := range sequences {
		for range q.Pairs[q.Written:] {
			out[i] = append(out[i], CachePair{inert, inert})
		}
	}
	return out
}

// PackRows codes rows x [1, heads, n, HeadDim] as AttendCaches writes them: [1, heads, n, words] of uint32.
func (s *Scope) PackRows(x *Array, code RowCode) *Array {
	const op = "pack_rows"
	if !s.usable(op) || !s.have(op, x) {
		return inert
	}
	return s.one(op, C.ck_cache_pack(x.ctx, code.c(), s.stream), x)
}
