package kernels

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/clademl/clade/sdk/mlx"
)

// The kernels of libcladekernels for the CPU (native/kernels). Activations keep their dtype, sums are float32 in one order.
var (
	// Linear is a norm, one or more matrices, a gate and a residual.
	Linear = Kernel{
		Name:      "linear",
		Signature: "x [.., in], w [out, in] dense or affine (2 to 8 bits, GGUF and MLX formats repacked), norm [in]?, residual [.., out]? -> [.., out]",
		Devices:   []string{"cpu"},
		Fallback:  "matrices are arrays, dequantized to float32 at load, and MLX multiplies them",
	}
	// LinearInt8 is Linear with quantized matrices and activations rounded to 8 bits: it runs where kernels=fast asks for it.
	LinearInt8 = Kernel{
		Name: "linear-int8",
		Signature: "x [.., in] as 8 bits with a scale for 32 columns at most, w [out, in] affine -> [.., out]; " +
			"error at most the sum over columns of |w| max|x| / 254, the maximum over the columns that share a scale",
		Devices:  []string{"cpu"},
		Fallback: "linear, with the activations as they are",
	}
	// Embed looks up rows.
	Embed = Kernel{
		Name:      "embed",
		Signature: "ids [..], w [vocab, hidden] dense or affine -> [.., hidden]",
		Devices:   []string{"cpu"},
		Fallback:  "the table is an array, dequantized to float32 at load, and MLX takes its rows",
	}
	// Attend is rope, the cache write and softmax attention.
	Attend = Kernel{
		Name:      "attend",
		Signature: "qkv [1, T, (heads + 2 kv_heads) d], keys and values [1, kv_heads, capacity, d] -> [1, T, heads d]",
		Devices:   []string{"cpu"},
		Fallback:  "MLX's rope, slice update and scaled dot product attention",
	}
)

// AttendRows is Attend for a step of several sequences.
var AttendRows = Kernel{
	Name:      "attend-rows",
	Signature: "qkv [1, T, (heads + 2 kv_heads) d] of all sequences, keys and values of each -> [1, T, heads d]",
	Devices:   []string{"cpu"},
	Fallback:  "attend, once for each sequence",
}

// LinearUpdates is Linear of rows that have low-rank adapters, each its own.
var LinearUpdates = Kernel{
	Name:      "linear-updates",
	Signature: "linear, and for rows of x: + scale b (a x), a [r, in], b [out, r] dense -> [.., out]",
	Devices:   []string{"cpu"},
	Fallback:  "rows of one adapter are cut out, and the low-rank products are operations of their own",
}

// AttendCaches is AttendRows over caches that are coded, or not in one piece: a plan has it where a composition or a window asks
// for such.
var AttendCaches = Kernel{
	Name: "attend-caches",
	Signature: "qkv [1, T, (heads + 2 kv_heads) d] of all sequences, keys and values of each as rows of floats or of 32-bit words " +
		"(affine, turbo: docs/kv.md), in tiles of 256 positions -> [1, T, heads d]",
	Devices:  []string{"cpu"},
	Fallback: "rows are coded and decoded by MLX's operations, and its scaled dot product attention reads them as floats",
}

// AttendSoftcap is AttendCaches with bent scores: a plan has it for a graph that bends them.
var AttendSoftcap = Kernel{
	Name:      "attend-softcap",
	Signature: "attend-caches, whose scores become cap tanh(score / cap) before they are masked",
	Devices:   []string{"cpu"},
	Fallback:  "MLX's matmul, tanh and softmax; what a token gets depends on how its prompt is cut then",
}

// Experts is a mixture of experts with its router's choice.
var Experts = Kernel{
	Name: "experts",
	Signature: "x [.., in], logits [.., experts], gate and up [experts width, in], down [experts in, width] dense or affine, residual [.., in]? " +
		"-> [.., in]",
	Devices:  []string{"cpu"},
	Fallback: "MLX's argpartition, and its gather_mm over float32 matrices, rows sorted by expert from 64 picks on",
}

// Trellis is Linear and Embed of matrices of trellis codes: a plan has it where the model has such.
var Trellis = Kernel{
	Name: "trellis",
	Signature: "x [.., in], w [out, in] as trellis codes (QTIP 1MAD, 1 to 8 bits a value, blocks along either axis), decoded inside the product " +
		"-> [.., out]",
	Devices:  []string{"cpu"},
	Fallback: "matrices are arrays, decoded to float32 at load, and MLX multiplies them",
}

// CPU is the registry of all of them.
func CPU() Registry {
	return NewRegistry(Linear, Embed, Attend, LinearInt8, AttendRows, LinearUpdates, AttendCaches, Sample, Experts, AttendSoftcap, Trellis,
		Decoder, GatedDelta, AttendLatent, HeadLinear, Mixture)
}

// Tested is the runtime's library with every kernel compared with its fallback once.
type Tested struct {
	*mlx.Kernels
	results map[string]error
}

// Load opens the runtime's library and tests it, on a worker of its own.
func Load(r *mlx.Runtime) (_ *Tested, err error) {
	k, err := r.Kernels()
	if err != nil {
		return nil, err
	}
	w, err := r.NewWorker(mlx.CPU)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	t := &Tested{Kernels: k, results: map[string]error{}}
	for name, test := range tests {
		if !k.Has(name) {
			continue
		}
		t.results[name] = w.Do(context.Background(), func(s *mlx.Scope) error { return errors.Join(test(s, k), s.Err()) })
	}
	return t, nil
}

// tests compare a kernel with its fallback.
var tests = map[string]func(*mlx.Scope, *mlx.Kernels) error{
	Linear.Name: testLinear, Embed.Name: testEmbed, Attend.Name: testAttend, LinearInt8.Name: testLinearInt8,
	AttendRows.Name: testAttendRows, LinearUpdates.Name: testLinearUpdates,
	AttendCaches.Name: testAttendCaches, Sample.Name: testSample,
	Experts.Name: testExperts, AttendSoftcap.Name: testAttendSoftcap, Trellis.Name: testTrellis, Decoder.Name: testDecoder,
	GatedDelta.Name: testGatedDelta, AttendLatent.Name: testAttendLatent, HeadLinear.Name: testHeadLinear, Mixture.Name: testMixture,
}

// SelfTest is the result of the comparison at load.
func (t *Tested) SelfTest(name string) error { return t.results[name] }

// wave is n values without a pattern that a kernel could get right by accident.
func wave(s *mlx.Scope, seed float64, shape ...int) *mlx.Array {
	n := 1
	for _, d := range shape {
		n *= d
	}
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(math.Sin(seed + float64(i)*0.7 + float64(i%13)*1.9))
	}
	return mlx.FromSlice(s, out, shape...)
}

// packedWave is a quantized matrix in the kernels' memory and the array of its values.
func packedWave(s *mlx.Scope, k *mlx.Kernels, seed float64, rows, cols int) (*mlx.Packed, *mlx.Array, error) {
	q := mlx.Quant{GroupSize: 32, Bits: 4}
	codes, scales, biases := s.Quantize(wave(s, seed, rows, cols), q)
	p, err := k.NewAffine(rows, cols, mlx.Affine{Bits: q.Bits, Group: q.GroupSize, Scale: mlx.Float32})
	if err != nil {
		return nil, nil, err
	}
	var raw [3][]byte
	for i, a := range []*mlx.Array{codes, scales, biases} {
		if raw[i], err = mlx.Bytes(s, a); err != nil {
			p.Close()
			return nil, nil, err
		}
	}
	if err := p.SetAffine(0, rows, raw[0], raw[1], raw[2]); err != nil {
		p.Close()
		return nil, nil, err
	}
	return p, s.Dequantize(codes, scales, biases, q, mlx.Opt[mlx.DType]{}), nil
}

// agree compares two float32 arrays within 1e-5 of the largest value.
func agree(s *mlx.Scope, got, want *mlx.Array) error {
	g, err := mlx.ToSlice[float32](s, got)
	if err != nil {
		return err
	}
	w, err := mlx.ToSlice[float32](s, want)
	if err != nil {
		return err
	}
	if len(g) != len(w) {
		return fmt.Errorf("%d values, the fallback has %d", len(g), len(w))
	}
	var largest, apart float64
	for i := range w {
		largest = max(largest, math.Abs(float64(w[i])))
		apart = max(apart, math.Abs(float64(g[i])-float64(w[i])))
	}
	if !(apart <= 1e-5*largest) { // also when either is NaN
		return fmt.Errorf("differs from the fallback by %g where values reach %g", apart, largest)
	}
	return nil
}

func testLinear(s *mlx.Scope, k *mlx.Kernels) error {
	for _, rows := range []int{1, 20} {
		a, wideA, err := packedWave(s, k, 1, 40, 64)
		if err != nil {
			return err
		}
		defer a.Close()
		b, wideB, err := packedWave(s, k, 2, 40, 64)
		if err != nil {
			return err
		}
		defer b.Close()
		x, norm, residual := wave(s, 3, rows, 64), wave(s, 4, 64), wave(s, 5, rows, 40)
		got := s.PackedLinear(x, mlx.PackedLinear{Weights: []*mlx.Packed{a, b}, Gate: mlx.SiLU, Norm: norm, Eps: 1e-5, Residual: residual})
		n := s.RMSNorm(x, norm, 1e-5)
		want := s.Add(residual, s.Mul(s.SiLU(s.Matmul(n, s.Transpose(wideA))), s.Matmul(n, s.Transpose(wideB))))
		if err := agree(s, got, want); err != nil {
			return err
		}
	}
	return nil
}

// testLinearInt8 holds the kernel to its bound against the exact product: values are at most 1, and so are weights.
func testLinearInt8(s *mlx.Scope, k *mlx.Kernels) error {
	const rows, cols, in = 5, 40, 64
	p, wide, err := packedWave(s, k, 1, cols, in)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.SetInt8(true); err != nil {
		return err
	}
	x := wave(s, 3, rows, in)
	got, err := mlx.ToSlice[float32](s, s.PackedLinear(x, mlx.PackedLinear{Weights: []*mlx.Packed{p}}))
	if err != nil {
		return err
	}
	want, err := mlx.ToSlice[float32](s, s.Matmul(x, s.Transpose(wide)))
	if err != nil {
		return err
	}
	sums, err := mlx.ToSlice[float32](s, s.Sum(s.Abs(wide), 1, false))
	if err != nil {
		return err
	}
	for i := range want {
		if bound := float64(sums[i%cols])/254 + 1e-5; !(math.Abs(float64(got[i])-float64(want[i])) <= bound) {
			return fmt.Errorf("differs from the exact product by %g, the bound is %g", math.Abs(float64(got[i])-float64(want[i])), bound)
		}
	}
	return nil
}

func testEmbed(s *mlx.Scope, k *mlx.Kernels) error {
	p, wide, err := packedWave(s, k, 6, 40, 64)
	if err != nil {
		return err
	}
	defer p.Close()
	ids := mlx.FromSlice(s, []int32{39, 0, 17})
	return agree(s, s.PackedEmbed(ids, p, mlx.Float32), s.Take(wide, ids, 0))
}

func testAttend(s *mlx.Scope, _ *mlx.Kernels) error {
	const heads, kvHeads, dim, rows = 4, 2, 16, 9
	qkv := wave(s, 7, 1, rows, (heads+2*kvHeads)*dim)
	inv := s.Exp(s.MulScalar(s.Arange(0, -dim/2, -1, mlx.Float32), math.Log(10000)/(dim/2)))
	cache := func() *mlx.Array { return s.Zeros([]int{1, kvHeads, 256, dim}, mlx.Float32) }
	got, _, _ := s.PackedAttend(qkv, cache(), cache(), mlx.PackedAttention{
		Heads: heads, KVHeads: kvHeads, HeadDim: dim, RopeDims: dim, RopeScale: 1, RopeMScale: 1, InvFreq: inv, Scale: 0.25,
	})
	part := func(first, n int) *mlx.Array {
		return s.Transpose(s.Reshape(s.SliceAxis(qkv, -1, first*dim, (first+n)*dim), 1, rows, n, dim), 0, 2, 1, 3)
	}
	rope := mlx.RoPE{Dims: dim, Base: 10000}
	o := s.SDPA(s.RoPE(part(0, heads), rope, 0), s.RoPE(part(heads, kvHeads), rope, 0), part(heads+kvHeads, kvHeads), 0.25, mlx.Causal(), nil)
	return agree(s, got, s.Reshape(s.Transpose(o, 0, 2, 1, 3), 1, rows, heads*dim))
}

// testAttendRows compares two sequences of one call with each alone.
func testAttendRows(s *mlx.Scope, _ *mlx.Kernels) error {
	const dim, rows = 16, 5
	qkv := wave(s, 8, 1, 2*rows, 3*dim)
	cache := func() *mlx.Array { return s.Zeros([]int{1, 1, 256, dim}, mlx.Float32) }
	a := mlx.PackedAttention{Heads: 1, KVHeads: 1, HeadDim: dim, RopeScale: 1, RopeMScale: 1, Scale: 0.25}
	first, _, _ := s.PackedAttend(s.SliceAxis(qkv, 1, 0, rows), cache(), cache(), a)
	second, _, _ := s.PackedAttend(s.SliceAxis(qkv, 1, rows, 2*rows), cache(), cache(), a)
	both, _ := s.PackedAttendRows(qkv, []mlx.PackedSequence{
		{Keys: cache(), Values: cache(), Tokens: rows}, {Keys: cache(), Values: cache(), Tokens: rows},
	}, a)
	return agree(s, both, s.Concat(1, first, second))
}

// testLinearUpdates gives two rows of five an adapter.
func testLinearUpdates(s *mlx.Scope, k *mlx.Kernels) error {
	const rows, cols, in, rank, first, changed = 5, 40, 64, 6, 1, 2
	w, wide, err := packedWave(s, k, 1, cols, in)
	if err != nil {
		return err
	}
	defer w.Close()
	dense := func(a *mlx.Array) (*mlx.Packed, error) {
		p, err := k.NewDense(a.Dim(0), a.Dim(1), mlx.Float32)
		if err != nil {
			return nil, err
		}
		raw, err := mlx.Bytes(s, a)
		if err == nil {
			err = p.SetDense(0, a.Dim(0), raw)
		}
		return p, err
	}
	a, b := wave(s, 2, rank, in), wave(s, 3, cols, rank)
	pa, err := dense(a)
	if err != nil {
		return err
	}
	defer pa.Close()
	pb, err := dense(b)
	if err != nil {
		return err
	}
	defer pb.Close()
	x := wave(s, 4, rows, in)
	got := s.PackedLinear(x, mlx.PackedLinear{
		Weights: []*mlx.Packed{w}, Updates: []mlx.PackedUpdate{{A: pa, B: pb, First: first, Rows: changed, Scale: 0.5}},
	})
	low := s.MulScalar(s.Matmul(s.Matmul(x, s.Transpose(a)), s.Transpose(b)), 0.5)
	want := s.Matmul(x, s.Transpose(wide))
	want = s.Concat(0, s.SliceAxis(want, 0, 0, first), s.Add(s.SliceAxis(want, 0, first, first+changed), s.SliceAxis(low, 0, first, first+changed)),
		s.SliceAxis(want, 0, first+changed, rows))
	return agree(s, got, want)
}

// testAttendCaches compares a sequence in affine and in turbo rows, in blocks that lie in another order, with the same kernel over
// floats of what these rows stand for: a group's ends are kept by eight bits to 1/510 of its range, turbo's values within theirs.
func testAttendCaches(s *mlx.Scope, _ *mlx.Kernels) error {
	const dim, rows = 32, 300
	qkv := wave(s, 9, 1, rows, 3*dim)
	a := mlx.PackedAttention{Heads: 1, KVHeads: 1, HeadDim: dim, RopeScale: 1, RopeMScale: 1, Scale: 0.25}
	plain := func() *mlx.Array { return s.Zeros([]int{1, 1, 512, dim}, mlx.Float32) }
	want, _, _ := s.PackedAttend(qkv, plain(), plain(), a)
	for _, c := range []struct {
		code  mlx.RowCode
		words int
		bound float64
	}{
		{mlx.RowCode{Kind: mlx.AffineRows, Bits: 8, Group: 32}, 9, 0.02},
		{mlx.RowCode{Kind: mlx.TurboRows, Bits: 8}, 9, 0.03},
	} {
		block := func() mlx.CachePair {
			return mlx.CachePair{Keys: s.Zeros([]int{1, 1, 256, c.words}, mlx.Uint32), Values: s.Zeros([]int{1, 1, 256, c.words}, mlx.Uint32)}
		}
		got, _ := s.AttendCaches(qkv, []mlx.CacheSequence{{
			Tokens: rows, KeyCode: c.code, ValueCode: c.code, Pairs: []mlx.CachePair{block(), block()}, Tiles: [][2]int32{{1, 0}, {0, 0}},
		}}, 0, a)
		apart, err := mlx.ToSlice[float32](s, s.MaxAll(s.Abs(s.Sub(got, want)), false))
		if err != nil {
			return err
		}
		if !(float64(apart[0]) <= c.bound) {
			return fmt.Errorf("rows of kind %d differ from floats by %g, the bound is %g", c.code.Kind, apart[0], c.bound)
		}
	}
	return nil
}
