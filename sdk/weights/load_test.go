package weights

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/plugintest/tiny"
	"github.com/clademl/clade/sdk/weights/quant"
)

var checkpoints = sync.OnceValue(func() []tiny.Checkpoint { return tiny.Llama() })

// matched is a tiny checkpoint with every parameter under its stored name.
func matched(t *testing.T, c tiny.Checkpoint, a *artifact.Artifact) *Set {
	t.Helper()
	q, err := ReadQuantization(a.Config())
	require.NoError(t, err)
	var params []Param
	if a.Format == artifact.GGUF {
		for _, x := range a.Tensors() {
			p := Param{Name: x.Name}
			for _, d := range x.Shape {
				p.Shape = append(p.Shape, int(d))
			}
			params = append(params, p)
		}
	} else {
		for _, x := range c.Tensors {
			params = append(params, Param{Name: x.Name, Shape: x.Shape})
		}
	}
	set, err := Match(a, params, Rules{Quantization: q})
	require.NoError(t, err)
	return set
}

// What the kernels hold of any format is what is decoded without them: every value, but for the sign of a zero and, of MLX's
// affine triples, a rounding.
func TestPackedWeightsHaveTheDecodedValues(t *testing.T) {
	w, k := openRuntime(t)
	for _, c := range checkpoints() {
		t.Run(c.Name, func(t *testing.T) {
			path, err := c.Write(t.TempDir())
			require.NoError(t, err)
			set := matched(t, c, open(t, path))
			values := map[string][]float32{}
			var last Progress
			report := func(p Progress) { last = p }
			require.NoError(t, load(t, w, set, Target{DType: mlx.Float32}, report, func(s *mlx.Scope, tensors *Tensors) {
				for _, src := range set.sources {
					require.Nil(t, tensors.Packed(src.Name))
					values[src.Name] = rowsOf(t, s, tensors, src.Name, src.Shape[0])
				}
			}))
			require.Equal(t, Progress{set.StoredBytes(), set.StoredBytes(), len(set.sources), len(set.sources)}, last)
			target := Target{DType: mlx.Float32, Kernels: k}
			before := k.WeightBytes()
			require.NoError(t, load(t, w, set, target, report, func(s *mlx.Scope, tensors *Tensors) {
				var dense int64
				for _, src := range set.sources {
					require.Equal(t, len(src.Shape) == 2, tensors.Packed(src.Name) != nil, src.Name)
					if len(src.Shape) != 2 {
						dense += src.elements() * 4
					}
					_, mlxAffine := src.codec.(affineCodec)
					for i, v := range rowsOf(t, s, tensors, src.Name, src.Shape[0]) {
						want := values[src.Name][i]
						// Scales of 24 bits: the decoder rounds product and sum, the kernels once.
						if off := math.Abs(float64(want) - float64(v)); off != 0 && !(mlxAffine && off < 0x1p-22) {
							require.Failf(t, "another value", "%s value %d: %g, want %g", src.Name, i, v, want)
						}
					}
				}
				planned, err := set.LoadedBytes(target)
				require.NoError(t, err)
				require.Equal(t, planned, k.WeightBytes()-before+dense)
			}))
			require.Equal(t, Progress{set.StoredBytes(), set.StoredBytes(), len(set.sources), len(set.sources)}, last)
			require.Equal(t, before, k.WeightBytes())
		})
	}
}

// poke is a tiny GGUF with bytes of one tensor replaced.
func poke(t *testing.T, name, tensor string, at int64, bytes ...byte) (tiny.Checkpoint, *artifact.Artifact) {
	t.Helper()
	for _, c := range checkpoints() {
		if c.Name != name {
			continue
		}
		path, err := c.Write(t.TempDir())
		require.NoError(t, err)
		x, ok := open(t, path).Tensor(tensor)
		require.True(t, ok)
		file := path
		if !strings.HasSuffix(path, ".gguf") {
			file = filepath.Join(path, "model.safetensors")
		}
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteAt(bytes, x.Offset+at)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return c, open(t, path)
	}
	require.Fail(t, "no checkpoint "+name)
	return tiny.Checkpoint{}, nil
}

// The largest half as a scale: its bias is beyond a half. And e4m3 values that bfloat16 does not reach.
func TestAScaleBeyondThePackingWidensItsTensorAlone(t *testing.T) {
	w, k := openRuntime(t)
	for _, tt := range []struct {
		name, tensor, poked string
		bytes               []byte
		affine              bool
	}{
		{"llama-gguf-q4_0.gguf", "blk.1.ffn_up.weight", "blk.1.ffn_up.weight", []byte{0xff, 0x7b}, true},
		{"llama-gguf-q8_0.gguf", "output.weight", "output.weight", []byte{0xff, 0xfb}, true},
		{"llama-gguf-iq4_nl.gguf", "blk.1.ffn_up.weight", "blk.1.ffn_up.weight", []byte{0xff, 0x7b}, true},
		{"llama-mxfp8", "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.scales", []byte{0, 1, 2}, false},
	} {
		c, a := poke(t, tt.name, tt.poked, 0, tt.bytes...)
		set := matched(t, c, a)
		values := map[string][]float32{}
		require.NoError(t, load(t, w, set, Target{DType: mlx.Float32}, quiet, func(s *mlx.Scope, tensors *Tensors) {
			values[tt.tensor] = rowsOf(t, s, tensors, tt.tensor, tensors.Get(tt.tensor).Dim(0))
		}))
		var last Progress
		require.NoError(t, load(t, w, set, Target{DType: mlx.Float32, Kernels: k}, func(p Progress) { last = p }, func(s *mlx.Scope, tensors *Tensors) {
			for name, p := range tensors.packed {
				held := p.DType
				if p.Affine != nil {
					held = p.Affine.Scale
				}
				require.Equal(t, name == tt.tensor, held == mlx.Float32, "%s %s", tt.name, name)
			}
			p := tensors.Packed(tt.tensor)
			require.Equal(t, tt.affine, p.Affine != nil)
			got := rowsOf(t, s, tensors, tt.tensor, p.Rows)
			for i, want := range values[tt.tensor] {
				if want != got[i] {
					require.Failf(t, "another value", "%s value %d: %g, want %g", tt.name, i, got[i], want)
				}
			}
		}))
		require.Equal(t, last.BytesTotal, last.Bytes, "bytes that are read twice count once")
	}
}

// 2^125 and up: no codes hold it. The error names the tensor and what loads it.
func TestAScaleThatNoPackingHoldsIsRefusedByName(t *testing.T) {
	w, k := openRuntime(t)
	c, a := poke(t, "llama-gguf-mxfp4.gguf", "blk.1.ffn_up.weight", 0, 253)
	set := matched(t, c, a)
	err := load(t, w, set, Target{DType: mlx.Float32, Kernels: k}, quiet, func(*mlx.Scope, *Tensors) {})
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "blk.1.ffn_up.weight: a scale is beyond what the packing holds")
	require.ErrorContains(t, err, "kernels=off")
	require.NoError(t, load(t, w, set, Target{DType: mlx.Float32}, quiet, func(*mlx.Scope, *Tensors) {}))
	require.Zero(t, k.WeightBytes())
}

func TestInfiniteAndNaNScalesLoad(t *testing.T) {
	bothWays(t, func(t *testing.T, w *mlx.Worker, target Target) {
		for name, at := range map[string]int64{"llama-gguf-q4_0.gguf": 0, "llama-gguf-q4_k.gguf": 0, "llama-gguf-q6_k.gguf": 208, "llama-gguf-q3_k.gguf": 108} {
			for _, h := range []uint16{0x7c00, 0xfc00, 0x7e00} {
				c, a := poke(t, name, "blk.1.ffn_up.weight", at, byte(h), byte(h>>8))
				require.NoError(t, load(t, w, matched(t, c, a), target, quiet, func(s *mlx.Scope, tensors *Tensors) {
					row := rowsOf(t, s, tensors, "blk.1.ffn_up.weight", 2)
					nonFinite := 0
					for _, v := range row[:32] {
						if v-v != 0 {
							nonFinite++
						}
					}
					require.NotZero(t, nonFinite, "%s %#x", name, h)
					require.Zero(t, row[len(row)-1]-row[len(row)-1], "other rows stay as they are")
				}))
			}
		}
	})
}

// 16 MB in pieces of 8: rows of a head change places within a piece.
func TestInterleavedRowsGoToTheirHalves(t *testing.T) {
	const rows, cols, heads = 4096, 1024, 32
	data := make([]byte, 4*rows*cols)
	for i := range rows * cols {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(i/cols)))
	}
	a := write(t, tensor{"q.weight", "F32", []int{rows, cols}, data})
	set, err := Match(a, []Param{{Name: "q.weight", Shape: []int{rows, cols}, InterleavedHeads: heads}}, Rules{})
	require.NoError(t, err)
	bothWays(t, func(t *testing.T, w *mlx.Worker, target Target) {
		pieces := 0
		require.NoError(t, load(t, w, set, target, func(Progress) { pieces++ }, func(s *mlx.Scope, tensors *Tensors) {
			got := rowsOf(t, s, tensors, "q.weight", rows)
			const dim = rows / heads
			for r := range rows {
				at := r/dim*dim + r%2*(dim/2) + r%dim/2
				require.Equal(t, float32(r), got[at*cols], "row %d", r)
				require.Equal(t, float32(r), got[at*cols+cols-1], "row %d", r)
			}
		}))
		require.Equal(t, 3, pieces, "two pieces and the tensor's end")
		require.EqualValues(t, 8<<20, set.StagingBytes(Target{DType: mlx.Float32})/2)
	})
}

func TestALoadCanBeCancelledBetweenPieces(t *testing.T) {
	a := write(t, tensor{"w.weight", "F32", []int{8192, 1024}, nil})
	set, err := Match(a, []Param{{Name: "w.weight", Shape: []int{8192, 1024}}}, Rules{})
	require.NoError(t, err)
	bothWays(t, func(t *testing.T, w *mlx.Worker, target Target) {
		ctx, cancel := context.WithCancel(context.Background())
		var seen Progress
		err := w.Do(context.Background(), func(s *mlx.Scope) error {
			_, err := set.Load(ctx, s, target, func(p Progress) { seen = p; cancel() })
			return err
		})
		require.Equal(t, contract.Cancelled, contract.KindOf(err), "%v", err)
		require.Less(t, seen.Bytes, seen.BytesTotal)
	})
}

func TestAFileThatShrinksUnderALoadIsNamed(t *testing.T) {
	a := write(t, tensor{"w.weight", "F32", []int{1024, 1024}, nil})
	set, err := Match(a, []Param{{Name: "w.weight", Shape: []int{1024, 1024}}}, Rules{})
	require.NoError(t, err)
	require.NoError(t, os.Truncate(filepath.Join(a.Path, "model.safetensors"), 2<<20))
	w, _ := openRuntime(t)
	err = load(t, w, set, Target{DType: mlx.Float32}, quiet, func(*mlx.Scope, *Tensors) {})
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err), "%v", err)
	require.ErrorContains(t, err, "model.safetensors: w.weight")
}

func TestEachRowIsConvertedOnceAndTheFirstErrorWins(t *testing.T) {
	for _, count := range []int{0, 1, 2, 3, 1000} {
		seen := make([]int, count)
		require.NoError(t, eachRow(count, func(r int, _ *scratch) error { seen[r]++; return nil }))
		for r, n := range seen {
			require.Equal(t, 1, n, "row %d of %d", r, count)
		}
	}
	err := eachRow(1000, func(r int, _ *scratch) error {
		if r%10 == 7 {
			return quant.ErrNotHeld
		}
		return nil
	})
	require.ErrorIs(t, err, quant.ErrNotHeld)
}
