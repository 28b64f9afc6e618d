package mlx

import (
	_ "embed"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The goldens are MLX 0.32.2's own results from Python: testdata/ops.py makes them.
//
//go:embed testdata/ops.json
var goldenJSON []byte

type golden struct {
	Shape  []int     `json:"shape"`
	DType  string    `json:"dtype"`
	Values []float64 `json:"values"`
}

// grid is the goldens' input: (37 i mod 61) / 30 - 1.
func grid(s *Scope, shape ...int) *Array {
	n := 1
	for _, d := range shape {
		n *= d
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i*37%61)/30 - 1
	}
	return FromSlice(s, v, shape...)
}

var goldenCases = map[string]func(s *Scope) []*Array{
	"rope": func(s *Scope) []*Array {
		return list(s.RoPE(grid(s, 2, 3, 4, 8), RoPE{Dims: 8, Base: 10000}, 3))
	},
	"rope_traditional": func(s *Scope) []*Array {
		return list(s.RoPE(grid(s, 2, 3, 4, 8), RoPE{Dims: 4, Traditional: true, Base: 500, Scale: 0.5}, 1))
	},
	"rope_freqs": func(s *Scope) []*Array {
		return list(s.RoPE(grid(s, 2, 3, 4, 8), RoPE{Dims: 8, Freqs: FromSlice(s, []float32{1, 3, 9, 27})}, 2))
	},
	"rope_at": func(s *Scope) []*Array {
		return list(s.RoPEAt(grid(s, 2, 3, 4, 8), RoPE{Dims: 8, Base: 10000}, FromSlice(s, []int32{1, 5})))
	},
	"rms_norm":      func(s *Scope) []*Array { return list(s.RMSNorm(grid(s, 2, 3, 4, 8), grid(s, 8), 1e-5)) },
	"rms_norm_none": func(s *Scope) []*Array { return list(s.RMSNorm(grid(s, 2, 3, 4, 8), nil, 1e-2)) },
	"layer_norm":    func(s *Scope) []*Array { return list(s.LayerNorm(grid(s, 2, 3, 4, 8), grid(s, 8), nil, 1e-5)) },
	"sdpa":          func(s *Scope) []*Array { return sdpa(s, Mask{}, nil) },
	"sdpa_causal":   func(s *Scope) []*Array { return sdpa(s, Causal(), nil) },
	"sdpa_array": func(s *Scope) []*Array {
		return sdpa(s, ArrayMask(s.Greater(grid(s, 3, 5), s.Scalar(0, Float32))), nil)
	},
	"sdpa_sinks": func(s *Scope) []*Array { return sdpa(s, Mask{}, grid(s, 4)) },
	"quantize4":  func(s *Scope) []*Array { return quantized(s, Quant{GroupSize: 32, Bits: 4}) },
	"quantize8":  func(s *Scope) []*Array { return quantized(s, Quant{GroupSize: 32, Bits: 8}) },
	"dequantize4": func(s *Scope) []*Array {
		return dequantized(s, Quant{GroupSize: 32, Bits: 4})
	},
	"dequantize8": func(s *Scope) []*Array {
		return dequantized(s, Quant{GroupSize: 32, Bits: 8})
	},
	"quantized_matmul4": func(s *Scope) []*Array { return quantizedProduct(s, Quant{GroupSize: 32, Bits: 4}) },
	"quantized_matmul8": func(s *Scope) []*Array { return quantizedProduct(s, Quant{GroupSize: 32, Bits: 8}) },
	"quantize_mxfp4": func(s *Scope) []*Array {
		w, sc, bi := s.Quantize(grid(s, 4, 64), Quant{Mode: "mxfp4"})
		if bi != nil {
			_ = s.Fail(&OpError{Op: "quantize", Message: "mxfp4 has no biases"})
		}
		return list(s.View(w, Uint8), sc)
	},
	"dequantize_mxfp4": func(s *Scope) []*Array {
		w, sc, bi := s.Quantize(grid(s, 4, 64), Quant{Mode: "mxfp4"})
		return list(s.Dequantize(w, sc, bi, Quant{Mode: "mxfp4"}, Opt[DType]{}))
	},
	"gather_qmm": func(s *Scope) []*Array {
		q := Quant{GroupSize: 32, Bits: 4}
		w, sc, bi := s.Quantize(grid(s, 3, 4, 64), q)
		return list(s.GatherQMM(grid(s, 2, 1, 64), w, sc, bi, nil, FromSlice(s, []uint32{2, 0}), true, q, false))
	},
	"gather_mm": func(s *Scope) []*Array {
		return list(s.GatherMM(grid(s, 2, 1, 64), s.Swapaxes(grid(s, 3, 4, 64), -1, -2), nil, FromSlice(s, []uint32{2, 0}), false))
	},
	"softmax": func(s *Scope) []*Array {
		y := grid(s, 3, 5)
		return list(s.Softmax(y, -1, false), s.Softmax(y, 0, true))
	},
	"logsumexp": func(s *Scope) []*Array { return list(s.LogSumExp(grid(s, 3, 5), -1, true)) },
	"argmax":    func(s *Scope) []*Array { return list(s.Argmax(grid(s, 3, 5), 1, false)) },
	"sort":      func(s *Scope) []*Array { y := grid(s, 3, 5); return list(s.Sort(y, 0), s.ArgSort(y, 1)) },
	"topk":      func(s *Scope) []*Array { return list(s.Sort(s.TopK(grid(s, 3, 5), 2, -1), -1)) },
	"argpartition": func(s *Scope) []*Array {
		return list(s.ArgPartition(grid(s, 3, 5), 2, -1))
	},
	"take": func(s *Scope) []*Array { return list(s.Take(grid(s, 3, 5), FromSlice(s, []int32{2, 0}), 0)) },
	"take_along": func(s *Scope) []*Array {
		return list(s.TakeAlongAxis(grid(s, 3, 5), FromSlice(s, []int32{1, 0, 4}, 3, 1), 1))
	},
	"where": func(s *Scope) []*Array {
		y := grid(s, 3, 5)
		return list(s.Where(s.Greater(y, s.Scalar(0, Float32)), y, s.Neg(y)))
	},
	"concat":         func(s *Scope) []*Array { y := grid(s, 3, 5); return list(s.Concat(1, y, s.MulScalar(y, 2))) },
	"split":          func(s *Scope) []*Array { return s.Split(grid(s, 4, 6), 3, 1) },
	"split_sections": func(s *Scope) []*Array { return s.SplitSections(grid(s, 4, 6), []int{1, 4}, 1) },
	"slice_update": func(s *Scope) []*Array {
		return list(s.SliceUpdate(grid(s, 4, 6), grid(s, 2, 3), []int{1, 2}, []int{3, 5}))
	},
	"cumsum": func(s *Scope) []*Array { return list(s.Cumsum(grid(s, 3, 5), 1, false, true, Opt[DType]{})) },
	"var":    func(s *Scope) []*Array { return list(s.Var(grid(s, 3, 5), 1, true, 1)) },
	"addmm":  func(s *Scope) []*Array { return list(s.Addmm(grid(s, 3, 2), grid(s, 3, 5), grid(s, 5, 2), 0.5, 2)) },
	"clip":   func(s *Scope) []*Array { return list(s.Clip(grid(s, 3, 5), s.Scalar(-0.5, Float32), nil)) },
	"einsum": func(s *Scope) []*Array { y := grid(s, 3, 5); return list(s.Einsum("ij,kj->ik", []*Array{y, y})) },
	"conv1d": func(s *Scope) []*Array { return list(s.Conv1d(grid(s, 1, 7, 4), grid(s, 3, 2, 4), 2, 1, 1, 1)) },
	"pad": func(s *Scope) []*Array {
		return list(s.Pad(grid(s, 3, 5), []int{0, 1}, []int{1, 0}, []int{0, 2}, s.Scalar(7, Float32), "constant"))
	},
	// Python scalars are weak: bfloat16 stays bfloat16, the scalar is rounded first.
	"bf16_scalar": func(s *Scope) []*Array { return list(s.MulScalar(s.AsType(grid(s, 3, 5), BFloat16), 5.66)) },
	"random": func(s *Scope) []*Array {
		k := s.RandomKey(7)
		return list(s.RandomUniform(s.Scalar(0, Float32), s.Scalar(1, Float32), []int{4}, Float32, k), s.RandomNormal([]int{4}, Float32, 0, 1, k))
	},
	"random_split": func(s *Scope) []*Array { _, b := s.RandomSplit(s.RandomKey(1)); return list(b) },
	"rfft":         func(s *Scope) []*Array { return list(s.Abs(s.RFFT(grid(s, 3, 5), 5, -1, FFTBackward))) },
	"norm":         func(s *Scope) []*Array { return list(s.LinalgNormL2(grid(s, 3, 5), []int{-1}, false)) },
	"arange":       func(s *Scope) []*Array { return list(s.Arange(1, 7, 2, Float32)) },
}

func list(a ...*Array) []*Array { return a }

func sdpa(s *Scope, m Mask, sinks *Array) []*Array {
	k := s.MulScalar(grid(s, 1, 2, 5, 8), 0.5)
	v := s.AddScalar(grid(s, 1, 2, 5, 8), 0.25)
	return list(s.SDPA(grid(s, 1, 4, 3, 8), k, v, 0.3, m, sinks))
}

func quantized(s *Scope, q Quant) []*Array {
	w, sc, bi := s.Quantize(grid(s, 4, 64), q)
	return list(s.View(w, Uint8), sc, bi)
}

func dequantized(s *Scope, q Quant) []*Array {
	w, sc, bi := s.Quantize(grid(s, 4, 64), q)
	return list(s.Dequantize(w, sc, bi, q, Opt[DType]{}))
}

func quantizedProduct(s *Scope, q Quant) []*Array {
	w, sc, bi := s.Quantize(grid(s, 4, 64), q)
	return list(s.QuantizedMatmul(grid(s, 3, 64), w, sc, bi, true, q))
}

func TestOpsAgreeWithPython(t *testing.T) {
	var want map[string][]golden
	require.NoError(t, json.Unmarshal(goldenJSON, &want))
	require.Len(t, goldenCases, len(want))
	for name, rows := range want {
		t.Run(name, func(t *testing.T) {
			do(t, func(s *Scope) {
				require.Contains(t, goldenCases, name)
				got := goldenCases[name](s)
				require.NoError(t, s.Err())
				require.Len(t, got, len(rows))
				for i, g := range rows {
					require.Equal(t, g.Shape, got[i].Shape())
					require.Equal(t, g.DType, got[i].DType().String())
					v, err := ToSlice[float32](s, s.AsType(got[i], Float32))
					require.NoError(t, err)
					for j := range v {
						if math.Abs(float64(v[j])-g.Values[j]) > 1e-6*math.Max(1, math.Abs(g.Values[j])) {
							require.Failf(t, "value", "output %d element %d: %g, want %g", i, j, v[j], g.Values[j])
						}
					}
				}
			})
		})
	}
}

func TestScalarsKeepTheDTypeAndNeverTruncate(t *testing.T) {
	do(t, func(s *Scope) {
		for d := Bool; d <= Complex64; d++ {
			v := s.Scalar(1, d)
			require.Equal(t, d, v.DType())
			require.Empty(t, v.Shape())
			f, err := Item[float32](s, s.AsType(v, Float32))
			require.NoError(t, err)
			require.Equal(t, float32(1), f, d)
		}
		for d, low := range map[DType]float64{Int8: -128, Int16: -32768, Int32: math.MinInt32, Int64: math.MinInt64} {
			f, err := Item[float32](s, s.AsType(s.Scalar(low, d), Float32))
			require.NoError(t, err)
			require.Equal(t, float32(low), f)
		}
	})
	fails(t, "multiply: 5.66 is no int32", func(s *Scope) { s.MulScalar(FromSlice(s, []int32{1}), 5.66) })
	fails(t, "add: 256 is no uint8", func(s *Scope) { s.AddScalar(FromSlice(s, []uint8{1}), 256) })
	fails(t, "scalar: NaN is no int64", func(s *Scope) { s.Scalar(math.NaN(), Int64) })
	fails(t, "as_strided: -1 is negative", func(s *Scope) {
		s.AsStrided(FromSlice(s, []int32{1}), []int{1}, []int64{1}, -1)
	})
}
