package mlx

// #include <stdlib.h>
// #include "kernels_shim.h"
// #cgo noescape ck_set_dense
// #cgo nocallback ck_set_dense
// #cgo noescape ck_set_affine
// #cgo nocallback ck_set_affine
// #cgo noescape ck_linear
// #cgo nocallback ck_linear
import "C"

import (
	"crypto/sha256"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/clademl/clade/sdk/contract"
)

// KernelsABI is the version of libcladekernels' interface that this binding speaks.
const KernelsABI = C.CK_ABI

// Kernels is the runtime's libcladekernels: CPU primitives that MLX lacks, on weights that the library owns. Their results
// are row by row: they depend neither on other rows nor on threads nor on the dispatch level.
type Kernels struct {
	path  string
	names []string
}

var kernels struct {
	sync.Mutex
	loaded *Kernels
}

// Kernels loads the runtime's kernel library. The error says why there is none: the runtime ships none, or it does not fit.
func (r *Runtime) Kernels() (*Kernels, error) {
	kernels.Lock()
	defer kernels.Unlock()
	if kernels.loaded != nil {
		return kernels.loaded, nil
	}
	path, ok := r.Library("libcladekernels")
	if !ok {
		return nil, contract.Errorf(contract.NotFound, r.dir, "the runtime has no libcladekernels")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	if C.ck_load(cpath) != 0 {
		return nil, contract.Errorf(contract.PluginMismatch, path, "%s", takeMessage())
	}
	kernels.loaded = &Kernels{path: path, names: strings.Fields(C.GoString(C.ck_list()))}
	return kernels.loaded, nil
}

// Names lists the kernels of the library.
func (k *Kernels) Names() []string { return slices.Clone(k.names) }

// Has tells whether the library has a kernel.
func (k *Kernels) Has(name string) bool { return slices.Contains(k.names, name) }

// Revision stands for the bits that the kernels give: two libraries with one revision give the same. One that does not say its own
// is its file's digest.
func (k *Kernels) Revision() (string, error) {
	if n := int(C.ck_revision()); n > 0 {
		return strconv.Itoa(n), nil
	}
	data, err := os.ReadFile(k.path)
	if err != nil {
		return "", contract.Errorf(contract.PluginMismatch, k.path, "%w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(data)), nil
}

// Level is the instruction set in use: avx512vnni, avx512, avxvnni, avx2, neondot, neon or generic.
func (k *Kernels) Level() string { return C.GoString(C.ck_level()) }

// Levels lists what this machine can run, best first.
func (k *Kernels) Levels() []string { return strings.Fields(C.GoString(C.ck_levels())) }

// SetLevel forces a level; "" is the best again. It is for tests: results do not depend on it.
func (k *Kernels) SetLevel(name string) error {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	if C.ck_set_level(c) != 0 {
		return fmt.Errorf("kernels: level %q is not one of %v", name, k.Levels())
	}
	return nil
}

// Threads is how many threads a kernel uses.
func (k *Kernels) Threads() int { return int(C.ck_threads()) }

// SetThreads changes it, between kernels.
func (k *Kernels) SetThreads(n int) error {
	return k.checked("set_threads", func() C.int { return C.ck_set_threads(C.int(n)) })
}

// Pin keeps the evaluating thread on the first processor, from its next kernel on, and worker threads on the others; none lifts it.
func (k *Kernels) Pin(cpus ...int) error {
	list := make([]C.int, len(cpus)+1)
	for i, c := range cpus {
		list[i] = C.int(c)
	}
	return k.checked("pin", func() C.int { return C.ck_pin(&list[0], C.int(len(cpus))) })
}

// Where weights lie when no memory node is named.
const (
	Anywhere   = -1 // where they are written first
	Interleave = -2 // spread over all nodes
)

// Places reports whether the library can place weights.
func (k *Kernels) Places() bool { return C.ck_places() != 0 }

// Place chooses the memory node of weights made from now on, or Anywhere, or Interleave.
func (k *Kernels) Place(node int) error {
	return k.checked("place", func() C.int { return C.ck_place(C.int(node)) })
}

// WeightBytes is what all packed weights hold.
func (k *Kernels) WeightBytes() int64 { return int64(C.ck_weight_bytes()) }

// checked runs a call whose message lies on its thread.
func (k *Kernels) checked(op string, call func() C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if call() != 0 {
		return &OpError{Op: op, Message: takeMessage()}
	}
	return nil
}

// Affine is the packing of a quantized weight: value = scale * code + bias, one scale and bias for Group columns.
type Affine struct {
	Bits, Group int
	Scale       DType // of scales and biases
}

var kernelDTypes = map[DType]C.int{Float32: 0, BFloat16: 1, Float16: 2}

// DenseBytes is what a packed dense weight [n, k] takes, for plans.
func (k *Kernels) DenseBytes(n, cols int, dtype DType) (int64, error) {
	return k.size(func(d C.int) C.size_t { return C.ck_size_dense(C.int(n), C.int(cols), d) }, dtype)
}

// AffineBytes is what a packed quantized weight [n, k] takes, for plans.
func (k *Kernels) AffineBytes(n, cols int, a Affine) (int64, error) {
	return k.size(func(d C.int) C.size_t {
		return C.ck_size_affine(C.int(n), C.int(cols), C.int(a.Bits), C.int(a.Group), d)
	}, a.Scale)
}

func (k *Kernels) size(call func(C.int) C.size_t, dtype DType) (int64, error) {
	d, ok := kernelDTypes[dtype]
	if !ok {
		return 0, &OpError{Op: "weight", Message: fmt.Sprintf("the kernels have no %v weights", dtype)}
	}
	var n C.size_t
	err := k.checked("weight", func() C.int {
		if n = call(d); n == 0 {
			return 1
		}
		return 0
	})
	return int64(n), err
}

// Packed is a weight [Rows, Cols] in the kernels' own layout and memory. Close frees it; ops that run keep it alive.
type Packed struct {
	Rows, Cols int
	DType      DType    // of a dense weight
	Affine     *Affine  // of one of affine codes, else nil
	Trellis    *Trellis // of one of trellis codes, else nil
	ctx        unsafe.Pointer
}

// NewDense makes a dense weight [n, cols], zero until SetDense.
func (k *Kernels) NewDense(n, cols int, dtype DType) (*Packed, error) {
	d, ok := kernelDTypes[dtype]
	if !ok {
		return nil, &OpError{Op: "weight", Message: fmt.Sprintf("the kernels have no %v weights", dtype)}
	}
	p := &Packed{Rows: n, Cols: cols, DType: dtype}
	return p, k.checked("weight", func() C.int { return p.take(C.ck_new_dense(C.int(n), C.int(cols), d)) })
}

// NewAffine makes a quantized weight [n, cols].
func (k *Kernels) NewAffine(n, cols int, a Affine) (*Packed, error) {
	d, ok := kernelDTypes[a.Scale]
	if !ok {
		return nil, &OpError{Op: "weight", Message: fmt.Sprintf("the kernels have no %v scales", a.Scale)}
	}
	p := &Packed{Rows: n, Cols: cols, Affine: &a}
	return p, k.checked("weight", func() C.int {
		return p.take(C.ck_new_affine(C.int(n), C.int(cols), C.int(a.Bits), C.int(a.Group), d))
	})
}

func (p *Packed) take(o C.cx_out) C.int {
	if o.rc == 0 {
		p.ctx = o.ctx
		live.Add(1)
	}
	return o.rc
}

// Close frees the weight. A nil or closed one is left alone.
func (p *Packed) Close() {
	if p != nil && p.ctx != nil {
		C.ck_free(p.ctx)
		p.ctx = nil
		live.Add(-1)
	}
}

// SetDense fills rows [row, row+count) from row-major memory in the weight's dtype.
func (p *Packed) SetDense(row, count int, rows []byte) error {
	if want := count * p.Cols * p.DType.Size(); len(rows) != want || count < 1 {
		return &OpError{Op: "set_dense", Message: fmt.Sprintf("%d bytes for %d rows of %d columns, want %d", len(rows), count, p.Cols, want)}
	}
	return p.set("set_dense", func() C.int { return C.ck_set_dense(p.ctx, C.int(row), C.int(count), u8(rows)) })
}

// SetAffine fills rows [row, row+count): codes packed as MLX packs them, scales and biases [count, Cols/Group].
func (p *Packed) SetAffine(row, count int, codes, scales, biases []byte) error {
	if p.Affine == nil {
		return &OpError{Op: "set_affine", Message: "the weight is dense"}
	}
	words, groups := count*p.Cols*p.Affine.Bits/8, count*p.Cols/p.Affine.Group*p.Affine.Scale.Size()
	if count < 1 || len(codes) != words || len(scales) != groups || len(biases) != groups {
		return &OpError{Op: "set_affine", Message: fmt.Sprintf("%d, %d and %d bytes, want %d, %d and %d", len(codes), len(scales), len(biases), words, groups, groups)}
	}
	return p.set("set_affine", func() C.int {
		return C.ck_set_affine(p.ctx, C.int(row), C.int(count), u8(codes), u8(scales), u8(biases))
	})
}

// SetBias adds bias [Rows] to every product; nil removes it.
func (p *Packed) SetBias(bias []float32) error {
	if bias != nil && len(bias) != p.Rows {
		return &OpError{Op: "set_bias", Message: fmt.Sprintf("%d values for %d rows", len(bias), p.Rows)}
	}
	return p.set("set_bias", func() C.int { return C.ck_set_bias(p.ctx, (*C.float)(unsafe.SliceData(bias))) })
}

// SetInt8 makes products with a quantized weight round x to 8 bits, one scale for 32 columns at most. Against the exact product they
// are off by at most the sum over the columns of |w| times 1/254 of the largest |x| that shares the scale, beside float32's own
// error; they too depend on nothing but their row. The kernel "linear-int8" of the library.
func (p *Packed) SetInt8(on bool) error {
	return p.set("set_int8", func() C.int { return C.ck_set_int8(p.ctx, C.bool(on)) })
}

func (p *Packed) set(op string, call func() C.int) error {
	if p.ctx == nil {
		return &OpError{Op: op, Message: "the weight is closed"}
	}
	return (&Kernels{}).checked(op, call)
}

func u8(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

// Gate is what joins the two products of a gated layer.
type Gate int

// The gates of Linear.
const (
	NoGate   Gate = 0 // the products stand side by side
	SiLU     Gate = 1 // silu(first) * second
	GELUTanh Gate = 2 // gelu_tanh(first) * second
)

// PackedLinear is a product with packed weights and what stands around it.
type PackedLinear struct {
	Weights  []*Packed // of one number of columns
	Gate     Gate      // takes two weights of one number of rows
	Norm     *Array    // [Cols] RMSNorm weight applied to x first, or nil
	Eps      float32
	Residual *Array // added to the result, or nil
	// Updates change the products of some rows of x, in their order, before gate and residual; the others keep their bits. See Updates.
	Updates []PackedUpdate
}

// PackedUpdate adds Scale * B (A x) to the products with weight Part in the rows [First, First+Rows) of x, all dimensions but the
// last counted together. A [r, Cols] and B [rows of the weight, r] are dense.
type PackedUpdate struct {
	A, B              *Packed
	Part, First, Rows int
	Scale             float32
}

// LinearUpdates reports whether the library has updates: its kernel "linear-updates".
func LinearUpdates() bool { return bool(C.ck_updates()) }

// PackedLinear maps x [.., Cols] to [.., sum of rows], or [.., rows] behind a gate.
func (s *Scope) PackedLinear(x *Array, l PackedLinear) *Array {
	const op = "packed_linear"
	if !s.usable(op) || !s.have(op, x) || !s.haveOrNil(op, l.Norm, l.Residual) {
		return inert
	}
	if len(l.Weights) < 1 || len(l.Weights) > C.CK_MAX_WEIGHTS {
		_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("%d weights", len(l.Weights))})
		return inert
	}
	var ws [C.CK_MAX_WEIGHTS]unsafe.Pointer
	for i, w := range l.Weights {
		if w == nil || w.ctx == nil {
			_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("weight %d is closed", i)})
			return inert
		}
		ws[i] = w.ctx
	}
	if len(l.Updates) > 0 {
		return s.packedUpdates(x, l, &ws)
	}
	o := C.ck_linear(x.ctx, &ws[0], C.int(len(l.Weights)), C.int(l.Gate), l.Norm.handle(), C.float(l.Eps), l.Residual.handle(), s.stream)
	return s.one(op, o, x)
}

// PackedEmbed is the rows of w by ids [..], as [.., Cols] of dtype.
func (s *Scope) PackedEmbed(ids *Array, w *Packed, dtype DType) *Array {
	const op = "packed_embed"
	if !s.usable(op) || !s.have(op, ids) {
		return inert
	}
	d, ok := kernelDTypes[dtype]
	if !ok || w == nil || w.ctx == nil {
		_ = s.Fail(&OpError{Op: op, Message: fmt.Sprintf("a closed weight, or rows as %v", dtype)})
		return inert
	}
	return s.one(op, C.ck_embed(ids.ctx, w.ctx, d, s.stream), ids)
}

// PackedAttention is one step of attention over a plain cache.
type PackedAttention struct {
	Heads, KVHeads, HeadDim int
	RopeDims                int // 0: no rotation
	RopeTraditional         bool
	RopeScale, RopeMScale   float32 // of positions; of the rotating channels
	InvFreq                 *Array  // [RopeDims/2] float32
	QNorm, KNorm            *Array  // [HeadDim] or nil
	NormEps                 float32
	Scale                   float32
	Offset, Window          int
	// Latent: a cached row is keys and values at once, and the projections have no values. AttendCaches does it, the others refuse it.
	Latent bool
	// Softcap bends scores to Softcap * tanh(score / Softcap), 0 leaves them: AttendCaches does it, the others refuse it.
	Softcap float32
}

// PackedAttend writes the keys and values of qkv [1, T, (Heads + 2 KVHeads) HeadDim] into the caches
// [1, KVHeads, capacity, HeadDim] at Offset, in place, and attends. It returns the result [1, T, Heads HeadDim] and the caches
// as they are after it; the given cache handles must not be used again.
func (s *Scope) PackedAttend(qkv, keys, values *Array, a PackedAttention) (out, newKeys, newValues *Array) {
	const op = "packed_attend"
	if !s.usable(op) || !s.have(op, qkv, keys, values) || !s.haveOrNil(op, a.InvFreq, a.QNorm, a.KNorm) {
		return inert, inert, inert
	}
	if a.Softcap != 0 || a.Latent {
		_ = s.Fail(&OpError{Op: op, Message: "bent scores and latents are attend_caches's"})
		return inert, inert, inert
	}
	o := C.ck_attend(qkv.ctx, keys.ctx, values.ctx, a.InvFreq.handle(), a.QNorm.handle(), a.KNorm.handle(), a.c(a.Offset), s.stream)
	if o.rc != 0 {
		s.failOp(op, qkv, keys, values)
		return inert, inert, inert
	}
	return s.add(o.out), s.add(o.keys), s.add(o.values)
}
