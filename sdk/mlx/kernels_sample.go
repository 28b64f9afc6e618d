package mlx

// #include "kernels_shim.h"
// #cgo noescape ck_sample
// #cgo nocallback ck_sample
import "C"

import (
	"fmt"
	"math"
	"unsafe"
)

// Sampling is how a row's token is picked; the members are in the order in which they are applied. The zero value, with
// Repetition 1, takes the likeliest token, of equal ones the lowest id.
type Sampling struct {
	Bias    map[int32]float64 // added to scores
	History []int32           // ids, oldest first, that the penalties look back at
	// Repetition divides the positive scores of seen ids and multiplies others, 1 is none; Presence is subtracted once, Frequency
	// for each time. Windows are last ids of the history; 0: all.
	Repetition, Presence, Frequency                   float64
	RepetitionWindow, PresenceWindow, FrequencyWindow int
	// Logprobs has the log probability of the token told, of the scores as they are here, and of so many alternatives.
	Logprobs *int
	Banned   []int32  // ids that may not come
	Allowed  []uint32 // (vocab + 31) / 32 words, a bit for each id that may come; nil: all
	TopP     float64  // outside (0, 1): none
	MinP     float64  // 0: none
	TypicalP float64  // outside (0, 1): none
	XTC      *float64 // its threshold, where it strikes
	Spared   []int32  // ids that XTC leaves
	TopK     int      // 0: none
	// Temperature divides the scores, to which the noise of Seed, Choice, Position and the id is added; 0 takes the likeliest.
	Temperature      float64
	Seed             uint64
	Choice, Position uint32
}

// SamplesRows reports whether the library has PackedSample: the kernel "sample".
func SamplesRows() bool { return bool(C.ck_samples()) }

// sampled is what the rows of a call have in common: their parts lie in these.
type sampled struct {
	ids    []int32
	values []float32
	words  []uint32
}

// PackedSample picks a token for each row of logits [n, vocab] float32: int32 [n]. Where rows ask for log probabilities, told int32
// and logprobs float32 [n, 1 + the most alternatives] are the token and its alternatives, likeliest first and -1 where there are no
// more; else both are nil. A row gets what it would get alone.
func (s *Scope) PackedSample(logits *Array, rows []Sampling) (tokens, told, logprobs *Array) {
	const op = "packed_sample"
	if !s.usable(op) || !s.have(op, logits) {
		return inert, inert, inert
	}
	if len(rows) == 0 {
		_ = s.Fail(&OpError{Op: op, Message: "no rows"})
		return inert, inert, inert
	}
	parts, asked := &sampled{}, false
	list := make([]C.ck_sampling, len(rows))
	for i, r := range rows {
		if r.Allowed != nil && len(r.Allowed) != (logits.Dim(-1)+31)/32 {
			_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("%d words of allowed ids for %d", len(r.Allowed), logits.Dim(-1))})
			return inert, inert, inert
		}
		list[i] = parts.c(r)
		asked = asked || r.Logprobs != nil
	}
	o := C.ck_sample(logits.ctx, &list[0], C.int(len(list)), (*C.int32_t)(unsafe.SliceData(parts.ids)), C.int(len(parts.ids)),
		(*C.float)(unsafe.SliceData(parts.values)), C.int(len(parts.values)), (*C.uint32_t)(unsafe.SliceData(parts.words)),
		C.int(len(parts.words)), s.stream)
	if o.rc != 0 {
		s.failOp(op, logits)
		return inert, inert, inert
	}
	tokens = s.add(o.tokens)
	if asked {
		told, logprobs = s.add(o.told), s.add(o.logprobs)
	}
	return tokens, told, logprobs
}

// c is the description that the library reads.
func (p *sampled) c(r Sampling) C.ck_sampling {
	out := C.ck_sampling{
		repetition: C.float(r.Repetition), presence: C.float(r.Presence), frequency: C.float(r.Frequency),
		repetition_window: C.int(r.RepetitionWindow), presence_window: C.int(r.PresenceWindow), frequency_window: C.int(r.FrequencyWindow),
		logprobs: -1, allowed: -1, top_p: C.double(r.TopP), least: C.float(math.Inf(-1)), typical_p: C.double(r.TypicalP), xtc: -1,
		top_k: C.int(min(r.TopK, math.MaxInt32)), temperature: C.float(r.Temperature), seed: C.uint64_t(r.Seed),
		choice: C.uint32_t(r.Choice), position: C.uint32_t(r.Position),
		history: p.span(r.History), banned: p.span(r.Banned), spared: p.span(r.Spared),
	}
	out.bias, out.bias_value = C.ck_span{first: C.int(len(p.ids)), count: C.int(len(r.Bias))}, C.int(len(p.values))
	for id, v := range r.Bias {
		p.ids, p.values = append(p.ids, id), append(p.values, float32(v))
	}
	if r.Logprobs != nil {
		out.logprobs = C.int(*r.Logprobs)
	}
	if r.Allowed != nil {
		out.allowed = C.int(len(p.words))
		p.words = append(p.words, r.Allowed...)
	}
	if r.MinP > 0 {
		out.least = C.float(math.Log(r.MinP))
	}
	if r.XTC != nil {
		out.xtc = C.float(*r.XTC)
	}
	return out
}

func (p *sampled) span(ids []int32) C.ck_span {
	first := len(p.ids)
	p.ids = append(p.ids, ids...)
	return C.ck_span{first: C.int(first), count: C.int(len(ids))}
}
