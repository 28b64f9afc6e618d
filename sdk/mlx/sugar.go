package mlx

import (
	"fmt"
	"slices"
)

// AddScalar is x + v in x's dtype.
func (s *Scope) AddScalar(x *Array, v float64) *Array { return s.withScalar("add", s.Add, x, v) }

// SubScalar is x - v in x's dtype.
func (s *Scope) SubScalar(x *Array, v float64) *Array { return s.withScalar("subtract", s.Sub, x, v) }

// MulScalar is x * v in x's dtype.
func (s *Scope) MulScalar(x *Array, v float64) *Array { return s.withScalar("multiply", s.Mul, x, v) }

// DivScalar is x / v in x's dtype.
func (s *Scope) DivScalar(x *Array, v float64) *Array { return s.withScalar("divide", s.Div, x, v) }

// PowScalar is x to the power v in x's dtype.
func (s *Scope) PowScalar(x *Array, v float64) *Array { return s.withScalar("power", s.Pow, x, v) }

// MaximumScalar is max(x, v) in x's dtype.
func (s *Scope) MaximumScalar(x *Array, v float64) *Array {
	return s.withScalar("maximum", s.Maximum, x, v)
}

// MinimumScalar is min(x, v) in x's dtype.
func (s *Scope) MinimumScalar(x *Array, v float64) *Array {
	return s.withScalar("minimum", s.Minimum, x, v)
}

func (s *Scope) withScalar(name string, op func(a, b *Array) *Array, x *Array, v float64) *Array {
	if !s.usable(name) || !s.have(name, x) {
		return inert
	}
	return op(x, s.scalarFor(name, v, x.DType()))
}

// SiLU is x * sigmoid(x).
func (s *Scope) SiLU(x *Array) *Array { return s.Mul(x, s.Sigmoid(x)) }

// Transpose permutes the axes; without axes it reverses them.
func (s *Scope) Transpose(x *Array, axes ...int) *Array {
	if len(axes) == 0 {
		return s.transposeAll(x)
	}
	return s.transposeAxes(x, axes...)
}

// Concat joins arrays along axis.
func (s *Scope) Concat(axis int, arrays ...*Array) *Array { return s.concatAxis(arrays, axis) }

// Slice is x[start:stop] on every axis, with step 1.
func (s *Scope) Slice(x *Array, start, stop []int) *Array {
	return s.slice(x, start, stop, s.ones(len(start))...)
}

// SliceStrided is x[start:stop:strides] on every axis.
func (s *Scope) SliceStrided(x *Array, start, stop, strides []int) *Array {
	return s.slice(x, start, stop, strides...)
}

// SliceAxis is x[start:stop] along one axis; negative axis counts from the end.
func (s *Scope) SliceAxis(x *Array, axis, start, stop int) *Array {
	if !s.usable("slice") || !s.have("slice", x) {
		return inert
	}
	sh := x.Shape()
	at := axis
	if at < 0 {
		at += len(sh)
	}
	if at < 0 || at >= len(sh) {
		_ = s.Fail(&OpError{Op: "slice", Shapes: [][]int{sh}, Message: fmt.Sprintf("no axis %d", axis)})
		return inert
	}
	var lo, hi [maxDims]int
	copy(hi[:], sh)
	lo[at], hi[at] = start, stop
	return s.Slice(x, lo[:len(sh)], hi[:len(sh)])
}

// SliceUpdate is src with src[start:stop] replaced by update; MLX does it in place when src has no other user.
func (s *Scope) SliceUpdate(src, update *Array, start, stop []int) *Array {
	return s.sliceUpdate(src, update, start, stop, s.ones(len(start))...)
}

// SliceUpdateStrided is SliceUpdate with steps.
func (s *Scope) SliceUpdateStrided(src, update *Array, start, stop, strides []int) *Array {
	return s.sliceUpdate(src, update, start, stop, strides...)
}

var manyOnes = slices.Repeat([]int{1}, maxDims)

func (s *Scope) ones(n int) []int {
	if n > maxDims {
		return slices.Repeat([]int{1}, n)
	}
	return manyOnes[:n]
}

// RoPE rotates the first Dims channels of x [.., T, D] by their position, offset for the first row.
type RoPE struct {
	Dims        int
	Traditional bool    // pairs (2i, 2i+1); else (i, i+Dims/2)
	Base        float32 // ignored when Freqs is given
	Scale       float32 // of positions; 0 means 1
	Freqs       *Array  // base^(2i/dims), [Dims/2]: reciprocals of the inverse frequencies
}

func (r RoPE) args() (base Opt[float32], scale float32) {
	scale = r.Scale
	if scale == 0 {
		scale = 1
	}
	if r.Freqs == nil {
		base = Some(r.Base)
	}
	return base, scale
}

// RoPE applies rotary positions that start at offset.
func (s *Scope) RoPE(x *Array, r RoPE, offset int) *Array {
	base, scale := r.args()
	return s.fastRoPE(x, r.Dims, r.Traditional, base, scale, offset, r.Freqs)
}

// RoPEAt applies rotary positions that start at offset, an int32 scalar or one value per row of the batch.
func (s *Scope) RoPEAt(x *Array, r RoPE, offset *Array) *Array {
	base, scale := r.args()
	return s.fastRoPEDynamic(x, r.Dims, r.Traditional, base, scale, offset, r.Freqs)
}

// Mask is what attention may see. The zero value masks nothing.
type Mask struct {
	causal bool
	array  *Array
}

// Causal is the mask that lets a query see keys up to its own position, aligned at the end.
func Causal() Mask { return Mask{causal: true} }

// ArrayMask is a bool array (true: keep) or an additive one, broadcast to [B, H, Tq, Tk].
func ArrayMask(a *Array) Mask { return Mask{array: a} }

// SDPA is scaled dot-product attention of q [B, H, Tq, D], k and v [B, Hkv, Tk, D]. sinks [H] may be nil.
func (s *Scope) SDPA(q, k, v *Array, scale float32, mask Mask, sinks *Array) *Array {
	mode := ""
	switch {
	case mask.causal:
		mode = "causal"
	case mask.array != nil:
		mode = "array"
	}
	return s.fastSDPA(q, k, v, scale, mode, mask.array, sinks, false)
}

// Quant is how weights are quantized. Zero GroupSize or Bits are the mode's own.
type Quant struct {
	GroupSize int
	Bits      int
	Mode      string // affine (also when empty), mxfp4, nvfp4, mxfp8
}

func (q Quant) args() (group, bits Opt[int], mode string) {
	if q.GroupSize != 0 {
		group = Some(q.GroupSize)
	}
	if q.Bits != 0 {
		bits = Some(q.Bits)
	}
	mode = q.Mode
	if mode == "" {
		mode = "affine"
	}
	return group, bits, mode
}

// Quantize packs w [.., in] along its last axis. biases is nil except in affine mode.
func (s *Scope) Quantize(w *Array, q Quant) (packed, scales, biases *Array) {
	group, bits, mode := q.args()
	out := s.quantize(w, group, bits, mode, nil)
	switch len(out) {
	case 2:
		return out[0], out[1], nil
	case 3:
		return out[0], out[1], out[2]
	}
	if s.fail.err == nil {
		_ = s.Fail(&OpError{Op: "quantize", Message: fmt.Sprintf("gave %d arrays", len(out))})
	}
	return inert, inert, inert
}

// Dequantize is the inverse of Quantize; biases is nil except in affine mode; dtype unset is that of the scales.
func (s *Scope) Dequantize(packed, scales, biases *Array, q Quant, dtype Opt[DType]) *Array {
	group, bits, mode := q.args()
	return s.dequantize(packed, scales, biases, group, bits, mode, nil, dtype)
}

// QuantizedMatmul is x @ w, or x @ w.T with transpose, for packed w.
func (s *Scope) QuantizedMatmul(x, packed, scales, biases *Array, transpose bool, q Quant) *Array {
	group, bits, mode := q.args()
	return s.quantizedMatmul(x, packed, scales, biases, transpose, group, bits, mode)
}

// GatherMM multiplies matrices of a and b chosen by index; an index that is nil takes them in order.
func (s *Scope) GatherMM(a, b, lhs, rhs *Array, sorted bool) *Array {
	return s.gatherMM(a, b, lhs, rhs, sorted)
}

// GatherQMM is GatherMM for packed weights, such as experts.
func (s *Scope) GatherQMM(x, packed, scales, biases, lhs, rhs *Array, transpose bool, q Quant, sorted bool) *Array {
	group, bits, mode := q.args()
	return s.gatherQMM(x, packed, scales, biases, lhs, rhs, transpose, group, bits, mode, sorted)
}
