package weights

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights/quant"
)

// pair is a matrix of trellis codes; nil data are zeros.
func pair(m Module, out, in int, rings, scales []byte) []tensor {
	lines, width := out, in
	if m.Axis == 0 {
		lines, width = out/m.Group, in*m.Group
	}
	return []tensor{{"a.weight", "U32", []int{lines, width * m.Bits / 32}, rings}, {"a.scales", "F32", []int{lines, width / m.Group}, scales}}
}

func trellisModule(bits, block, state, axis int) Module {
	return Module{Affine: quant.Affine{Bits: bits, Group: block}, Mode: trellisMode, State: state, Axis: axis}
}

// Packed and as arrays, piece by piece: the values are those of quant's decoder, which are numpy's, bit for bit.
func TestTrellisWeightsHaveNumpysValues(t *testing.T) {
	var golden struct {
		Cases []struct {
			Bits, Block, State, Axis, Out, In int
			Rings, Scales                     string
		}
	}
	data, err := os.ReadFile("quant/testdata/trellis.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &golden))
	bothWays(t, func(t *testing.T, w *mlx.Worker, target Target) {
		for _, c := range golden.Cases {
			m := trellisModule(c.Bits, c.Block, c.State, c.Axis)
			rings, err := base64.StdEncoding.DecodeString(c.Rings)
			require.NoError(t, err)
			scales, err := base64.StdEncoding.DecodeString(c.Scales)
			require.NoError(t, err)
			set, err := Match(write(t, pair(m, c.Out, c.In, rings, scales)...), []Param{{Name: "a.weight", Shape: []int{c.Out, c.In}}}, Rules{Quantization: Quantization{Trellis: &m}})
			require.NoError(t, err)
			require.Equal(t, []string{"trellis"}, set.Kernels())
			by := make([]float32, len(scales)/4)
			quant.F32Row(by, scales)
			want, lines, f := make([]float32, c.Out*c.In), c.Out, m.trellis()
			if c.Axis == 0 {
				lines = c.Out / c.Block
			}
			for i, each := 0, len(want)/lines; i < lines; i++ {
				n := each / c.Block
				f.Row(want[i*each:(i+1)*each], rings[i*n*f.RingBytes():], by[i*n:(i+1)*n])
			}
			require.NoError(t, load(t, w, set, target, quiet, func(s *mlx.Scope, tensors *Tensors) {
				require.Equal(t, target.Kernels != nil, tensors.Packed("a.weight") != nil)
				require.Equal(t, want, rowsOf(t, s, tensors, "a.weight", c.Out), "%s", m)
				if p := tensors.Packed("a.weight"); p != nil {
					planned, err := set.LoadedBytes(target)
					require.NoError(t, err)
					require.Equal(t, planned, target.Kernels.WeightBytes())
					require.Error(t, p.SetInt8(true), "there are no affine codes to multiply")
				}
			}))
		}
	})
}

func TestTrellisEntriesAreReadOrRefusedByName(t *testing.T) {
	read := func(block map[string]any) (Quantization, error) {
		data, err := json.Marshal(map[string]any{"quantization": block})
		require.NoError(t, err)
		c, err := artifact.ParseConfig("config.json", data)
		require.NoError(t, err)
		return ReadQuantization(c)
	}
	with := func(change map[string]any) map[string]any {
		out := map[string]any{"mode": "trellis", "bits": 2, "group_size": 256, "L": 16, "code": "1mad", "axis": 1}
		maps.Copy(out, change)
		return out
	}
	q, err := read(with(map[string]any{"a": map[string]any{"mode": "trellis", "bits": 4, "axis": 0}, "b": map[string]any{"bits": 8}, "c": false}))
	require.NoError(t, err)
	require.Equal(t, "trellis, 2 bits in blocks of 256 along axis 1, states of 16 bits", q.Trellis.String())
	require.Equal(t, "trellis, 4 bits in blocks of 256 along axis 0, states of 16 bits", q.Modules["a"].String(), "what it leaves out is the block's")
	require.Equal(t, "affine, 8 bits in groups of 64", q.Modules["b"].String())
	require.Equal(t, "dense", q.Modules["c"].String())
	for says, block := range map[string]map[string]any{
		"quantization.L: is missing":            with(map[string]any{"L": nil}),
		"quantization.axis: 2.5 is no such":     with(map[string]any{"axis": 2.5}),
		"quantization.bits: -1 is no such":      with(map[string]any{"bits": -1}),
		"axis 3":                                with(map[string]any{"axis": 3}),
		"trellis code hyb is not known":         with(map[string]any{"code": "hyb"}),
		"trellis code <nil> is not known":       with(map[string]any{"code": nil}),
		"blocks of 250":                         with(map[string]any{"group_size": 250}),
		"quantization.a.group_size: is missing": {"bits": 4, "group_size": 64, "a": map[string]any{"mode": "trellis", "bits": 2}},
	} {
		_, err := read(block)
		require.ErrorContains(t, err, says)
		require.Contains(t, []contract.Kind{contract.ArtifactCorrupt, contract.UnsupportedModel}, contract.KindOf(err))
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestTrellisTensorsAreHeldToTheirFormat(t *testing.T) {
	m := trellisModule(2, 64, 16, 1)
	other := func(part int, dtype string, shape ...int) []tensor {
		x := pair(m, 64, 128, nil, nil)
		x[part].DType, x[part].Shape = dtype, shape
		return x
	}
	columns := trellisModule(2, 48, 16, 0)
	for says, tt := range map[string]struct {
		tensors []tensor
		param   Param
		module  Module
	}{
		"":                             {pair(m, 64, 128, nil, nil), Param{}, m},
		"not U32":                      {other(0, "F32", 64, 8), Param{}, m},
		"not floats":                   {other(1, "U32", 64, 2), Param{}, m},
		"packed [64 9]":                {other(0, "U32", 64, 9), Param{}, m},
		"scales [32 2]":                {other(1, "F32", 32, 2), Param{}, m},
		"blocks of 48 do not divide":   {pair(m, 64, 128, nil, nil), Param{}, columns},
		"it is no plain matrix":        {pair(m, 64, 128, nil, nil), Param{InterleavedHeads: 4}, m},
		"the config says affine, 4":    {triple("a", 64, 128, 8, 64), Param{}, Module{Affine: quant.Affine{Bits: 4, Group: 64}, Mode: affineMode}},
		"the config says trellis, 2 b": {triple("a", 64, 128, 8, 64), Param{}, m},
	} {
		p := tt.param
		p.Name, p.Shape = "a.weight", []int{64, 128}
		_, err := Match(write(t, tt.tensors...), []Param{p}, Rules{Quantization: Quantization{Modules: map[string]Module{"a": tt.module}}})
		if says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "a")
	}
}

// Whatever shapes a file gives, they fit or are refused.
func FuzzTrellisShapes(f *testing.F) {
	f.Add(64, 128, int64(64), int64(8), int64(64), int64(2), 2, 64, 1)
	f.Add(1, 1, int64(1), int64(1)<<62, int64(1), int64(0), 8, 16, 0)
	f.Fuzz(func(t *testing.T, rows, cols int, packedRows, words, scaleRows, groups int64, bits, block, axis int) {
		module := trellisModule(bits, block, 16, axis)
		if rows < 1 || cols < 1 || rows > 1<<20 || cols > 1<<20 || !module.trellis().Valid() {
			return // Match and the config's reader refuse it before
		}
		m := matcher{artifact: &artifact.Artifact{}}
		src, err := m.trellis(Param{Name: "a.weight", Shape: []int{rows, cols}}, "a",
			artifact.Tensor{DType: artifact.U32, Shape: []int64{packedRows, max(words, 0)}}, artifact.Tensor{DType: artifact.F32, Shape: []int64{scaleRows, max(groups, 0)}}, module)
		if err == nil {
			lines, width := src.geometry()
			sizes := src.codec.rowBytes(width)
			require.EqualValues(t, packedRows*words*4, lines*sizes[0])
			require.EqualValues(t, scaleRows*groups*4, lines*sizes[1])
		}
	})
}
