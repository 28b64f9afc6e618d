package nn

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/clademl/clade/sdk/mlx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// do runs fn on a worker of the runtime in CLADE_RUNTIME, else in bin/runtime/cpu, which then must have freed every array.
func do(t *testing.T, fn func(s *mlx.Scope, k *mlx.Kernels)) {
	t.Helper()
	dir := os.Getenv("CLADE_RUNTIME")
	if dir == "" {
		_, file, _, _ := runtime.Caller(0)
		dir = filepath.Join(filepath.Dir(file), "..", "..", "bin", "runtime", "cpu")
	}
	r, err := mlx.Open(dir)
	require.NoError(t, err, "run make setup")
	k, err := r.Kernels()
	require.NoError(t, err, "run make setup")
	w, err := r.NewWorker(mlx.CPU)
	require.NoError(t, err)
	before := mlx.LiveHandles()
	require.NoError(t, w.Do(context.Background(), func(s *mlx.Scope) error {
		fn(s, k)
		return s.Err()
	}))
	require.NoError(t, w.Close())
	require.Equal(t, before, mlx.LiveHandles())
}

// parameters holds matrices as arrays and, where kernels are given, packs them.
type parameters struct {
	arrays map[string]*mlx.Array
	packed map[string]*mlx.Packed
}

func (p parameters) Get(name string) *mlx.Array {
	if p.packed[name] != nil {
		return nil
	}
	return p.arrays[name]
}
func (p parameters) Packed(name string) *mlx.Packed { return p.packed[name] }

func (p parameters) close() {
	for _, w := range p.packed {
		w.Close()
	}
}

// wave is n values without a short pattern, below 1.
func wave(n int, by float64) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(math.Sin(float64(i)*by + by))
	}
	return out
}

const width, rows = 64, 32

// tensors are a gated layer's matrices, a bias and a norm.
func tensors(t *testing.T, s *mlx.Scope, k *mlx.Kernels) parameters {
	p := parameters{map[string]*mlx.Array{
		"a.bias": mlx.FromSlice(s, wave(rows, 0.7)), "norm.weight": mlx.FromSlice(s, wave(width, 0.3)),
	}, map[string]*mlx.Packed{}}
	for i, name := range []string{"a.weight", "b.weight"} {
		values := wave(rows*width, 1.1+float64(i))
		p.arrays[name] = mlx.FromSlice(s, values, rows, width)
		if k == nil {
			continue
		}
		w, err := k.NewDense(rows, width, mlx.Float32)
		require.NoError(t, err)
		var data []byte
		for _, v := range values {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
		require.NoError(t, w.SetDense(0, rows, data))
		p.packed[name] = w
	}
	return p
}

func values(t *testing.T, s *mlx.Scope, a *mlx.Array) []float32 {
	t.Helper()
	v, err := mlx.ToSlice[float32](s, s.AsType(a, mlx.Float32))
	require.NoError(t, err)
	return v
}

// reference is the float64 product of wave(.., by) rows with x, plus bias.
func reference(x []float32, by float64, bias []float32) []float64 {
	w := wave(rows*width, by)
	out := make([]float64, len(x)/width*rows)
	for i := range out {
		for j := range width {
			out[i] += float64(x[i/rows*width+j]) * float64(w[i%rows*width+j])
		}
		if bias != nil {
			out[i] += float64(bias[i%rows])
		}
	}
	return out
}

func requireNear(t *testing.T, want []float64, got []float32, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		require.InDelta(t, want[i], got[i], 2e-5, "%s value %d", what, i)
	}
}

// Each layer is its equation in float64, on arrays and packed.
func TestLayersAreTheirEquations(t *testing.T) {
	do(t, func(s *mlx.Scope, k *mlx.Kernels) {
		x := wave(3*width, 0.9)
		bias, scale := wave(rows, 0.7), wave(width, 0.3)
		a, b := reference(x, 1.1, bias), reference(x, 2.1, nil)
		normed := make([]float32, len(x))
		for r := range 3 {
			var sum float64
			for _, v := range x[r*width : (r+1)*width] {
				sum += float64(v) * float64(v)
			}
			for j := range width {
				normed[r*width+j] = float32(float64(x[r*width+j]) * float64(scale[j]) / math.Sqrt(sum/width+1e-5))
			}
		}
		na, nb := reference(normed, 1.1, bias), reference(normed, 2.1, nil)
		for _, kernels := range []*mlx.Kernels{nil, k} {
			what := map[bool]string{true: "packed", false: "array"}[kernels != nil]
			p := tensors(t, s, kernels)
			in := mlx.FromSlice(s, x, 1, 3, width)
			norm := RMSNorm{Weight: p.Get("norm.weight"), Eps: 1e-5}
			withBias, plain := NewLinear(s, p, "a"), NewLinear(s, p, "b")
			require.Equal(t, kernels != nil, withBias.Packed != nil)
			requireNear(t, a, values(t, s, withBias.Forward(s, in)), what+" linear with bias")
			requireNear(t, b, values(t, s, plain.Forward(s, in)), what+" linear")

			h := wave(3*rows, 0.2)
			sum, gated, side := make([]float64, len(b)), make([]float64, len(b)), make([]float64, 0, 2*len(b))
			for i := range b {
				sum[i] = float64(h[i]) + b[i]
				gated[i] = na[i] / (1 + math.Exp(-na[i])) * nb[i]
			}
			for r := range 3 {
				side = append(append(side, na[r*rows:(r+1)*rows]...), nb[r*rows:(r+1)*rows]...)
			}
			requireNear(t, sum, values(t, s, plain.AddTo(s, mlx.FromSlice(s, h, 1, 3, rows), in)), what+" residual")
			requireNear(t, side, values(t, s, Project(s, norm, in, withBias, plain)), what+" project")
			requireNear(t, gated, values(t, s, SwiGLU(s, norm, in, withBias, plain)), what+" gate")

			e := NewEmbedding(p, "b", mlx.Float32)
			picked := values(t, s, e.Forward(s, mlx.FromSlice(s, []int32{5, 0, 31}, 1, 3)))
			table := wave(rows*width, 2.1)
			require.Equal(t, append(append(append([]float32{}, table[5*width:6*width]...), table[:width]...), table[31*width:]...), picked, what)
			requireNear(t, b, values(t, s, e.Head(s, nil, "", true).Forward(s, in)), what+" tied head")
			p.close()
		}
	})
}

// A dequantized weight is float32 under narrower activations: the product is float32's, the result the activations' dtype.
func TestAWideWeightComputesWide(t *testing.T) {
	do(t, func(s *mlx.Scope, _ *mlx.Kernels) {
		p := tensors(t, s, nil)
		x := s.AsType(mlx.FromSlice(s, wave(3*width, 0.9), 1, 3, width), mlx.BFloat16)
		y := NewLinear(s, p, "a").Forward(s, x)
		require.Equal(t, mlx.BFloat16, y.DType())
		want := reference(values(t, s, x), 1.1, wave(rows, 0.7))
		for i, v := range values(t, s, y) {
			require.InDelta(t, want[i], v, math.Abs(want[i])/128+2e-5, "value %d", i)
		}
	})
}

func TestAMissingNormOrMatrixIsNil(t *testing.T) {
	do(t, func(s *mlx.Scope, _ *mlx.Kernels) {
		l := NewLinear(s, tensors(t, s, nil), "nowhere")
		require.Nil(t, l.Weight)
		require.Nil(t, l.Packed)
	})
}
