package kv

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/mlx"
)

// golden is one code of the reference over the rows of referenceRows.
type golden struct {
	Kind             string
	Bits, Group, Dim int
	Words, Back      string
}

func (g golden) code() Code {
	if g.Kind == "turbo" {
		return Code{Kind: Turbo, Bits: g.Bits}
	}
	return Code{Kind: Affine, Bits: g.Bits, Group: g.Group}
}

// goldens are testdata/codes.json, written by testdata/reference.py with numpy.
func goldens(t *testing.T) []golden {
	t.Helper()
	data, err := os.ReadFile("testdata/codes.json")
	require.NoError(t, err)
	var out []golden
	require.NoError(t, json.Unmarshal(data, &out))
	require.Equal(t, 56, len(out))
	return out
}

// referenceRows are the reference's inputs: eight rows.
func referenceRows(dim int) []float32 {
	const rows = 8
	u := uint32(12345)
	out := make([]float32, rows*dim)
	for i := range out {
		u = u*1664525 + 1013904223
		out[i] = float32(int32(u>>8)-1<<23) / (1 << 21)
	}
	for i := range dim {
		out[i], out[dim+i] = 0, 2.5
		out[2*dim+i] *= 1.0 / (1 << 20)
		out[3*dim+i] *= 1 << 15
		if i > 0 {
			out[4*dim+i] *= 1.0 / (1 << 10)
		}
	}
	return out
}

func TestCodesAreThoseOfTheReference(t *testing.T) {
	for _, g := range goldens(t) {
		bothWays(t, func(t *testing.T, kernels bool) {
			onWorker(t, func(s *mlx.Scope) {
				what := fmt.Sprintf("%s %d bits, groups of %d, heads of %d", g.Kind, g.Bits, g.Group, g.Dim)
				c := g.code()
				require.NoError(t, c.Fits(g.Dim))
				x := mlx.FromSlice(s, referenceRows(g.Dim), 1, 2, 4, g.Dim)
				rows := c.encode(s, x, kernels)
				data, err := mlx.Bytes(s, rows)
				require.NoError(t, err)
				require.Equal(t, g.Words, base64.StdEncoding.EncodeToString(data), what)
				_, width := c.row(g.Dim, mlx.Float32)
				require.Equal(t, []int{1, 2, 4, width}, rows.Shape(), what)
				back, err := mlx.Bytes(s, s.Contiguous(c.decode(s, rows, g.Dim, mlx.Float32), false))
				require.NoError(t, err)
				sum := sha256.Sum256(back)
				require.Equal(t, g.Back, hex.EncodeToString(sum[:]), what)
			})
		})
	}
}

// Half floats are coded as the floats that they are.
func TestHalfRowsAreCodedAsTheirFloats(t *testing.T) {
	onWorker(t, func(s *mlx.Scope) {
		for _, dtype := range []mlx.DType{mlx.BFloat16, mlx.Float16} {
			for _, c := range []Code{{Kind: Affine, Bits: 4, Group: 32}, {Kind: Turbo, Bits: 3}} {
				x := s.AsType(mlx.FromSlice(s, referenceRows(64)[4*64:], 1, 1, 4, 64), dtype)
				want, err := mlx.Bytes(s, c.encode(s, s.AsType(x, mlx.Float32), false))
				require.NoError(t, err)
				for _, kernels := range []bool{true, false} {
					got, err := mlx.Bytes(s, c.encode(s, x, kernels))
					require.NoError(t, err)
					require.Equal(t, want, got)
				}
			}
		}
	})
}

// What is not a number must not crash a kernel that makes integers of it.
func TestRowsThatAreNoNumbersAreCodedToSomething(t *testing.T) {
	onWorker(t, func(s *mlx.Scope) {
		x := referenceRows(64)
		x[70], x[140], x[210], x[280] = float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.MaxFloat32)
		for _, g := range goldens(t) {
			if g.Dim == 64 {
				require.NoError(t, s.Eval(g.code().encode(s, mlx.FromSlice(s, x, 1, 1, 8, 64), true)))
			}
		}
	})
}

func TestCodesThatDoNotFitAreRefused(t *testing.T) {
	for _, c := range []struct {
		code Code
		dim  int
		why  string
	}{
		{Code{Kind: Affine, Bits: 7, Group: 64}, 64, "7 bits"},
		{Code{Kind: Affine, Bits: 4, Group: 64}, 96, "groups of 64 do not divide heads of 96"},
		{Code{Kind: Affine, Bits: 4, Group: 16}, 64, "groups of 16"},
		{Code{Kind: Turbo, Bits: 6}, 64, "6 bits"},
		{Code{Kind: Turbo, Bits: 4}, 72, "no multiple of 16"},
		{Code{Kind: Turbo, Bits: 4}, 2048, "wider"},
		{Code{Kind: 9}, 64, "unknown"},
	} {
		require.ErrorContains(t, c.code.Fits(c.dim), c.why)
	}
	require.Error(t, onWorkerEnds(t, func(s *mlx.Scope) {
		s.PackRows(s.Zeros([]int{1, 1, 1, 64}, mlx.Float32), mlx.RowCode{Kind: mlx.AffineRows, Bits: 7, Group: 64})
	}))
}
