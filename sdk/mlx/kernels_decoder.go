package mlx

// #include "kernels_shim.h"
// #cgo nocallback ck_decode
import "C"

import (
	"fmt"
	"unsafe"
)

// DecoderRows is the most rows that Decode takes in a step.
const DecoderRows = 8

// DecoderLayer is h + O attention(norm(h)), then h + the gated MLP of norm(h).
type DecoderLayer struct {
	Q, K, V, O, Gate, Up, Down *Packed
	AttentionNorm, MLPNorm     *Array // [hidden]
	QNorm, KNorm               *Array // [HeadDim], or nil
	// Router is that of a mixture, whose experts Gate, Up and Down then are, as in PackedExperts; or nil.
	Router        *Packed
	Experts, TopK int
	Normalize     bool
}

// Decoder is the layers of a model in the kernels' memory, for steps of a few rows. Close frees it; steps that run keep what they
// read.
type Decoder struct {
	Layers int
	ctx    unsafe.Pointer
}

// Decodes reports whether the library has Decoder: its kernel "decoder".
func Decodes() bool { return bool(C.ck_decodes()) }

// NewDecoder reads the norms, which are evaluated, and keeps the matrices. nil, and the scope has the error, where they do not fit.
func (s *Scope) NewDecoder(layers []DecoderLayer, act Gate, eps float32) *Decoder {
	const op = "decoder"
	if !s.usable(op) {
		return nil
	}
	in := make([]C.ck_decoder_layer, len(layers))
	for i, l := range layers {
		if !s.have(op, l.AttentionNorm, l.MLPNorm) || !s.haveOrNil(op, l.QNorm, l.KNorm) || s.Eval(l.AttentionNorm, l.MLPNorm) != nil {
			return nil
		}
		for _, n := range []*Array{l.QNorm, l.KNorm} {
			if n != nil && s.Eval(n) != nil {
				return nil
			}
		}
		weights := []*Packed{l.Q, l.K, l.V, l.O, l.Gate, l.Up, l.Down}
		if l.Router != nil {
			weights = append(weights, l.Router)
		}
		for _, w := range weights {
			if w == nil || w.ctx == nil {
				_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("a weight of layer %d is closed", i)})
				return nil
			}
		}
		in[i] = C.ck_decoder_layer{
			q: l.Q.ctx, k: l.K.ctx, v: l.V.ctx, o: l.O.ctx, gate: l.Gate.ctx, up: l.Up.ctx, down: l.Down.ctx,
			attention_norm: l.AttentionNorm.handle(), mlp_norm: l.MLPNorm.handle(), q_norm: l.QNorm.handle(), k_norm: l.KNorm.handle(),
		}
		if l.Router != nil {
			in[i].router, in[i].experts, in[i].top_k, in[i].normalize = l.Router.ctx, C.int(l.Experts), C.int(l.TopK), C.bool(l.Normalize)
		}
	}
	o := C.ck_decoder_new(unsafe.SliceData(in), C.int(len(in)), C.int(act), C.float(eps))
	if o.rc != 0 {
		s.failOp(op)
		return nil
	}
	live.Add(1)
	return &Decoder{Layers: len(layers), ctx: o.ctx}
}

// Close frees the decoder. A nil or closed one is left alone.
func (d *Decoder) Close() {
	if d != nil && d.ctx != nil {
		C.ck_decoder_free(d.ctx)
		d.ctx = nil
		live.Add(-1)
	}
}

// Decode takes x [1, T, hidden] through all layers, T at most DecoderRows: one operation with the bits of PackedLinear, AttendCaches and
// PackedMixture.
// layers are the sequences as each layer has them, with tiles; it returns the result and each layer's written pairs, as AttendCaches
// does. a.Softcap and a's norms are not read.
func (s *Scope) Decode(d *Decoder, x *Array, layers [][]CacheSequence, keep int, a PackedAttention) (*Array, [][][]CachePair) {
	const op = "decode"
	fail := func() (*Array, [][][]CachePair) {
		out := make([][][]CachePair, len(layers))
		for i, l := range layers {
			out[i] = inertCaches(l)
		}
		return inert, out
	}
	if !s.usable(op) || !s.have(op, x) || !s.haveOrNil(op, a.InvFreq) {
		return fail()
	}
	if d == nil || d.ctx == nil || len(layers) != d.Layers {
		_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("the caches of %d layers, for a decoder of others", len(layers))})
		return fail()
	}
	var lent lentCaches
	for _, l := range layers {
		if len(l) != len(layers[0]) {
			_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("%d and %d sequences", len(l), len(layers[0]))})
			return fail()
		}
		if !lent.add(s, op, l) {
			return fail()
		}
	}
	if lent.empty() {
		_ = s.Fail(&OpError{Op: op, Message: "no sequence, or none that is written"})
		return fail()
	}
	made := make([]unsafe.Pointer, 2*lent.written)
	var result unsafe.Pointer
	if C.ck_decode(&result, &made[0], d.ctx, x.ctx, &lent.caches[0], C.int(len(layers[0])), &lent.described[0], &lent.tables[0], C.int(keep),
		a.InvFreq.handle(), a.c(0), s.stream) != 0 {
		s.failOp(op, x)
		return fail()
	}
	out := make([][][]CachePair, len(layers))
	for i, l := range layers {
		out[i], made = s.writtenCaches(l, made)
	}
	return s.add(result), out
}
