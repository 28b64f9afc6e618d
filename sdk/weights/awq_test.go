package weights

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights/quant"
)

func init() { sizes["I32"] = 4 }

// awqGolden is testdata/awq.json, which testdata/awq.py makes with mlx-lm's _transform_awq_weights.
type awqGolden struct {
	In, Out, Group                  int
	QWeight, QZeros, Scales         []byte
	Weight, NewScales, Biases, Even []byte
}

func readAWQ(t *testing.T) awqGolden {
	t.Helper()
	data, err := os.ReadFile("testdata/awq.json")
	require.NoError(t, err)
	var g awqGolden
	require.NoError(t, json.Unmarshal(data, &g))
	return g
}

// The triples are mlx-lm's to the bit, with zeros and without.
func TestAWQIsRepackedAsMLXLMDoes(t *testing.T) {
	g := readAWQ(t)
	a := quant.AWQ{In: g.In, Out: g.Out, Group: g.Group, Scale: quant.Float16}
	packed, scales := make([]byte, len(g.Weight)), make([]byte, len(g.NewScales))
	biases, even := make([]byte, len(g.Biases)), make([]byte, len(g.Even))
	for w := range g.Out / 8 {
		a.Codes(packed, g.QWeight, w)
		a.Scales(scales, biases, g.Scales, g.QZeros, w)
		a.Scales(scales, even, g.Scales, nil, w)
	}
	require.Equal(t, g.Weight, packed)
	require.Equal(t, g.NewScales, scales)
	require.Equal(t, g.Biases, biases)
	require.Equal(t, g.Even, even)
}

func awqTensors(in, out, group int) []tensor {
	rng := rand.New(rand.NewPCG(1, 2))
	words := func(n int) []byte {
		var raw []byte
		for range n {
			raw = binary.LittleEndian.AppendUint32(raw, rng.Uint32())
		}
		return raw
	}
	var scales []byte
	for range in / group * out {
		scales = binary.LittleEndian.AppendUint16(scales, quant.ToF16(float32(rng.Float64())))
	}
	return []tensor{
		{"a.qweight", "I32", []int{in, out / 8}, words(in * out / 8)},
		{"a.scales", "F16", []int{in / group, out}, scales},
		{"a.qzeros", "I32", []int{in / group, out / 8}, words(in / group * out / 8)},
	}
}

// Rows of a matrix that holds several parameters, of groups of heads too, are those of the whole.
func TestPartsOfAnAWQMatrixAreItsRows(t *testing.T) {
	const in, out = 64, 48
	a := write(t, awqTensors(in, out, 32)...)
	read := func(t *testing.T, w *mlx.Worker, target Target, params ...Param) (values []float32) {
		set, err := Match(a, params, Rules{Quantization: Quantization{Repacked: true}})
		require.NoError(t, err)
		require.NoError(t, load(t, w, set, target, quiet, func(s *mlx.Scope, tensors *Tensors) {
			values = rowsOf(t, s, tensors, params[0].Name, params[0].Shape[0])
		}))
		require.Positive(t, set.StagingBytes(target))
		require.Contains(t, set.Quantized(), "AWQ 4-bit in groups of 32")
		return values
	}
	bothWays(t, func(t *testing.T, w *mlx.Worker, target Target) {
		whole := read(t, w, target, Param{Name: "a.weight", Shape: []int{out, in}})
		part := read(t, w, target, Param{Name: "p.weight", Shape: []int{16, in}, Part: &Part{Of: "a.weight", Rows: out, Groups: 2, First: 4}})
		var want []float32
		for _, first := range []int{4, 28} {
			want = append(want, whole[first*in:(first+8)*in]...)
		}
		require.Equal(t, want, part)
	})
}

func TestAWQThatIsNotRepackedIsRefusedByName(t *testing.T) {
	good := awqTensors(64, 16, 32)
	for name, tt := range map[string]struct {
		change  func([]tensor) []tensor
		kind    contract.Kind
		subject string
	}{
		"an order of columns": {func(l []tensor) []tensor { return append(l, tensor{"a.g_idx", "I32", []int{64}, nil}) }, contract.UnsupportedModel, "a.g_idx"},
		"GPTQ's own layout": {func(l []tensor) []tensor {
			return append(l[1:], tensor{"a.qweight", "I32", []int{8, 16}, nil})
		}, contract.UnsupportedModel, "packed along its input"},
		"no scales":          {func(l []tensor) []tensor { return append(l[:1:1], l[2]) }, contract.ArtifactCorrupt, "a.scales is missing"},
		"another shape":      {func(l []tensor) []tensor { l[0].Shape, l[0].Data = []int{64, 3}, nil; return l }, contract.ArtifactCorrupt, "a.qweight"},
		"scales of integers": {func(l []tensor) []tensor { l[1].DType, l[1].Data = "I32", nil; return l }, contract.ArtifactCorrupt, "a.scales"},
		"zeros of floats":    {func(l []tensor) []tensor { l[2].DType, l[2].Data = "F32", nil; return l }, contract.ArtifactCorrupt, "codes"},
		"zeros of a shape":   {func(l []tensor) []tensor { l[2].Shape, l[2].Data = []int{2, 3}, nil; return l }, contract.ArtifactCorrupt, "a.qzeros"},
		"odd groups":         {func(l []tensor) []tensor { l[1].Shape, l[1].Data = []int{4, 16}, nil; return l[:2] }, contract.ArtifactCorrupt, "groups of 16"},
		"a weight beside":    {func(l []tensor) []tensor { return append(l, tensor{"a.weight", "F16", []int{16, 64}, nil}) }, contract.ArtifactCorrupt, "no place"},
	} {
		t.Run(name, func(t *testing.T) {
			list := append([]tensor{}, good...)
			_, err := Match(write(t, tt.change(list)...), []Param{{Name: "a.weight", Shape: []int{16, 64}}}, Rules{Quantization: Quantization{Repacked: true}})
			require.ErrorContains(t, err, tt.subject)
			require.Equal(t, tt.kind, contract.KindOf(err), "%v", err)
		})
	}
	for config, want := range map[string]string{
		`{"quant_method":"awq","bits":8}`:                                   "quantization_config.bits",
		`{"quant_method":"awq","bits":"4"}`:                                 "quantization_config.bits",
		`{"quant_method":"awq","group_size":-1}`:                            "quantization_config.group_size",
		`{"quant_method":"awq","version":"gemv"}`:                           "quantization_config.version",
		`{"quant_method":"gptq","desc_act":true}`:                           "quantization_config.desc_act",
		`{"quant_method":"compressed-tensors","format":"float-quantized"}`:  "quantization_config.format",
		`{"quant_method":"bitnet"}`:                                         `the method "bitnet"`,
		`{"quant_method":"fp8","weight_block_size":[128,128]}`:              `the method "fp8"`,
		`{"quant_method":"modelopt","quant_algo":"NVFP4"}`:                  `the method "modelopt"`,
		`{"quant_method":"bitsandbytes","load_in_4bit":true}`:               `the method "bitsandbytes"`,
		`{"quant_method":"compressed-tensors","format":["pack-quantized"]}`: "quantization_config.format",
	} {
		c, err := artifact.ParseConfig("config.json", []byte(`{"quantization_config":`+config+`}`))
		require.NoError(t, err)
		_, err = ReadQuantization(c)
		require.ErrorContains(t, err, want)
		require.Equal(t, contract.UnsupportedModel, contract.KindOf(err))
	}
}
