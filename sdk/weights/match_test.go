package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/mlx"
)

func TestMatchIsStrict(t *testing.T) {
	f32 := func(name string, shape ...int) tensor { return tensor{name, "F32", shape, nil} }
	matrix := func(heads int) []Param {
		return []Param{{Name: "a.weight", Shape: []int{64, 128}, InterleavedHeads: heads}}
	}
	with := func(dtype string, part int, shape ...int) []tensor {
		x := triple("a", 64, 128, 4, 64)
		x[part].DType = dtype
		if len(shape) > 0 {
			x[part].Shape = shape
		}
		return x
	}
	tests := []struct {
		name    string
		tensors []tensor
		params  []Param
		kind    contract.Kind
		says    string
	}{
		{"an affine triple", triple("a", 64, 128, 4, 64), matrix(0), 0, ""},
		{"a float matrix", []tensor{f32("a.weight", 64, 128)}, matrix(4), 0, ""},
		{"a missing tensor", []tensor{f32("b.weight", 64, 128)}, matrix(0), contract.ArtifactCorrupt, "a.weight: this tensor is missing"},
		{"codes whose scales are missing", slices.Delete(triple("a", 64, 128, 4, 64), 1, 2), matrix(0), contract.ArtifactCorrupt, "a.weight: holds packed codes, but a.scales is missing"},
		{"an extra one", []tensor{f32("a.weight", 64, 128), f32("b.weight", 1)}, matrix(0), contract.ArtifactCorrupt, "b.weight: the graph has no place for this tensor"},
		{"another shape", []tensor{f32("a.weight", 128, 64)}, matrix(0), contract.ArtifactCorrupt, "has shape [128 64], the config makes it [64 128]"},
		{"heads that do not divide", []tensor{f32("a.weight", 64, 128)}, matrix(5), contract.ArtifactCorrupt, "64 rows are not pairs in each of 5 heads"},
		{"codes that are no words", with("F32", 0), matrix(0), contract.ArtifactCorrupt, "packed codes are F32, not U32"},
		{"scales unlike biases", with("F32", 2), matrix(0), contract.ArtifactCorrupt, "is F32 [64 2] beside scales of BF16 [64 2]"},
		{"scales for other rows", with("BF16", 1, 32, 4), matrix(0), contract.ArtifactCorrupt, "cannot hold a matrix of [64 128]"},
		{"scales that do not divide", with("BF16", 1, 64, 3), matrix(0), contract.ArtifactCorrupt, "cannot hold a matrix of [64 128]"},
		{"codes of a part of a bit", with("U32", 0, 64, 17), matrix(0), contract.ArtifactCorrupt, "no whole number of bits"},
		{"codes of seven bits", with("U32", 0, 64, 28), matrix(0), contract.ArtifactCorrupt, "is no affine format"},
		{"codes longer than any", with("U32", 0, 64, 4096), matrix(0), contract.ArtifactCorrupt, "no whole number of bits"},
		{"a type that is no weight", []tensor{{"a.weight", "U8", []int{64, 128}, nil}}, matrix(0), contract.UnsupportedModel, "stored as U8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Match(write(t, tt.tensors...), tt.params, Rules{})
			if tt.says == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, tt.kind, contract.KindOf(err), "%v", err)
			require.ErrorContains(t, err, tt.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestTwoTensorsForOneParameterAreRefused(t *testing.T) {
	a := write(t, tensor{"x.weight", "F32", []int{2}, nil}, tensor{"y.weight", "F32", []int{2}, nil})
	_, err := Match(a, []Param{{Name: "a.weight", Shape: []int{2}}}, Rules{Name: func(string) string { return "a.weight" }})
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "y.weight: stands for a.weight, and so does x.weight")
}

func TestAQuantizationBlockIsReadAsMLXLMReadsIt(t *testing.T) {
	read := func(block string) (Quantization, error) {
		c, err := artifact.ParseConfig("config.json", []byte(`{"quantization":`+block+`}`))
		require.NoError(t, err)
		return ReadQuantization(c)
	}
	q, err := read(`{"mode":"mxfp4","bits":4,"group_size":32,"a":{"bits":8},"b":false,"c":{"mode":"nvfp4"},"d":true,"e":{"group_size":32,"bits":6}}`)
	require.NoError(t, err)
	require.Equal(t, "affine, 8 bits in groups of 64", q.Modules["a"].String(), "an entry without a mode is affine")
	require.Equal(t, "dense", q.Modules["b"].String())
	require.Equal(t, "nvfp4, 4 bits in groups of 16", q.Modules["c"].String())
	require.Equal(t, "mxfp4, 4 bits in groups of 32", q.Modules["d"].String(), "true is what the block says of all")
	require.Equal(t, "affine, 6 bits in groups of 32", q.Modules["e"].String())
	for block, says := range map[string]string{
		`{"bits":7}`:                        "7 bits in groups of 64 is no format of mode affine",
		`{"bits":"4"}`:                      "quantization.bits: is not an integer",
		`{"mode":"mxfp8","bits":4}`:         "4 bits in groups of 32 is no format of mode mxfp8",
		`5`:                                 "quantization: is not an object",
		`{"mode":5}`:                        "quantization.mode: is not a text",
		`{"mode":"fp6"}`:                    `mode "fp6"`,
		`{"a":{"mode":"int3"}}`:             `mode "int3"`,
		`{"quant_method":"bitnet"}`:         `the method "bitnet"`,
		`{"bits":4,"a":{"group_size":1.5}}`: "quantization.a.group_size: is not an integer",
	} {
		_, err := read(block)
		require.ErrorContains(t, err, says, block)
	}
}

// Shapes come from the file: whatever they are, they are inferred or refused, without a panic.
func FuzzCodesOf(f *testing.F) {
	f.Add(64, 128, int64(64), int64(16), int64(64), int64(2))
	f.Add(1, 1, int64(1), int64(1)<<62, int64(1), int64(0))
	f.Fuzz(func(t *testing.T, rows, cols int, packedRows, words, scaleRows, groups int64) {
		if rows < 1 || cols < 1 {
			return // Match refuses it before
		}
		p := Param{Name: "a.weight", Shape: []int{rows, cols}}
		a, err := codesOf(p, artifact.Tensor{DType: artifact.U32, Shape: []int64{packedRows, max(words, 0)}},
			artifact.Tensor{DType: artifact.F32, Shape: []int64{scaleRows, max(groups, 0)}})
		if err == nil {
			require.Equal(t, words*32, int64(a.Bits)*int64(cols), fmt.Sprint(a))
			require.Equal(t, int64(cols), int64(a.Group)*groups)
		}
	})
}

// Hugging Face keeps gate and up of every expert in one tensor, each expert's gate before its up.
func TestExpertsOfAFusedTensorAreReadApart(t *testing.T) {
	const experts, rows, cols = 3, 16, 16
	fused := tensor{"both.weight", "F32", []int{experts, 2 * rows, cols}, nil}
	for i := range experts * 2 * rows * cols {
		fused.Data = binary.LittleEndian.AppendUint32(fused.Data, math.Float32bits(float32(i)))
	}
	half := func(name string, first int) Param {
		return Param{
			Name: name, Shape: []int{experts, rows, cols}, Experts: true,
			Part: &Part{Of: "both.weight", Rows: experts * 2 * rows, Groups: experts, First: first},
		}
	}
	set, err := Match(write(t, fused), []Param{half("gate.weight", 0), half("up.weight", rows)}, Rules{})
	require.NoError(t, err)
	require.EqualValues(t, len(fused.Data), set.StoredBytes())
	bothWays(t, func(t *testing.T, w *mlx.Worker, target Target) {
		require.NoError(t, load(t, w, set, target, quiet, func(s *mlx.Scope, tensors *Tensors) {
			for part, name := range []string{"gate.weight", "up.weight"} {
				for i, v := range rowsOf(t, s, tensors, name, experts*rows) {
					expert, within := i/(rows*cols), i%(rows*cols)
					require.EqualValues(t, (2*expert+part)*rows*cols+within, v, "%s, value %d", name, i)
				}
			}
		}))
	})
	_, err = Match(write(t, tensor{"both.weight", "F32", []int{experts, rows, cols}, nil}), []Param{half("gate.weight", 0)}, Rules{})
	require.ErrorContains(t, err, "both.weight: has shape [3 16 16], the config makes it [3 32 16]")
}
