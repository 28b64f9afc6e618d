package lora

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

// tensor has 0, 1, 2, ... as its values.
func tensor(name string, dtype artifact.DType, shape ...int64) artifact.NewTensor {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	var data []byte
	for i := range n {
		switch dtype {
		case artifact.F32:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
		case artifact.BF16:
			data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(float32(i))>>16))
		case artifact.F16:
			data = binary.LittleEndian.AppendUint16(data, half16(i))
		default:
			data = append(data, byte(i))
		}
	}
	return artifact.NewTensor{Name: name, DType: dtype, Shape: shape, Data: data}
}

// half16 is a whole number below 2048 as float16.
func half16(n int64) uint16 {
	if n == 0 {
		return 0
	}
	e := uint16(math.Ilogb(float64(n)))
	return (e+15)<<10 | uint16(n<<(10-e))&1023
}

func folder(t *testing.T, config, weights string, tensors ...artifact.NewTensor) string {
	t.Helper()
	dir := t.TempDir()
	if config != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, ConfigFile), []byte(config), 0o600))
	}
	if weights != "" {
		require.NoError(t, artifact.WriteSafetensors(filepath.Join(dir, weights), tensors, nil))
	}
	return dir
}

const (
	mlxConfig  = `{"fine_tune_type":"lora","num_layers":2,"lora_parameters":{"rank":2,"scale":20.0,"dropout":0.0,"keys":["self_attn.q_proj"]}}`
	peftConfig = `{"peft_type":"LORA","r":2,"lora_alpha":16,"target_modules":["q_proj","v_proj"],"bias":"none","modules_to_save":null,"rank_pattern":{},"use_dora":false,"fan_in_fan_out":false}`
	peftQ      = "base_model.model.model.layers.0.self_attn.q_proj"
	mlxQ       = "model.layers.0.self_attn.q_proj"
)

// MLX stores x A B, PEFT B A x: both come out as A [rank, in] and B [out, rank].
func TestBothFormatsGiveTheSamePair(t *testing.T) {
	for _, dtype := range []artifact.DType{artifact.F32, artifact.F16, artifact.BF16} {
		for _, c := range []struct {
			config, weights string
			tensors         []artifact.NewTensor
			scale           float64
			a, b            []float32
		}{
			{
				mlxConfig, MLXWeights,
				[]artifact.NewTensor{tensor(mlxQ+".lora_a", dtype, 3, 2), tensor(mlxQ+".lora_b", dtype, 2, 4)},
				20,
				[]float32{0, 2, 4, 1, 3, 5},
				[]float32{0, 4, 1, 5, 2, 6, 3, 7},
			},
			{
				peftConfig, PEFTWeights,
				[]artifact.NewTensor{tensor(peftQ+".lora_A.weight", dtype, 2, 3), tensor(peftQ+".lora_B.weight", dtype, 4, 2)},
				8,
				[]float32{0, 1, 2, 3, 4, 5},
				[]float32{0, 1, 2, 3, 4, 5, 6, 7},
			},
		} {
			ad, err := Open(folder(t, c.config, c.weights, c.tensors...))
			require.NoError(t, err)
			require.Len(t, ad.Modules, 1)
			m := ad.Modules[0]
			require.Equal(t, []any{mlxQ, 2, 3, 4, c.scale}, []any{m.Path, m.Rank, m.In, m.Out, m.Scale})
			a, err := ad.Read(m.A)
			require.NoError(t, err)
			b, err := ad.Read(m.B)
			require.NoError(t, err)
			require.Equal(t, c.a, a, "%s %s", ad.Format, dtype)
			require.Equal(t, c.b, b, "%s %s", ad.Format, dtype)
			require.NoError(t, ad.Close())
		}
	}
}

func TestPEFTScales(t *testing.T) {
	pair := []artifact.NewTensor{tensor(peftQ+".lora_A.weight", artifact.F32, 4, 3), tensor(peftQ+".lora_B.weight", artifact.F32, 4, 4)}
	for config, want := range map[string]float64{
		`{"peft_type":"LORA","r":4,"lora_alpha":16}`:                                                                        4,
		`{"peft_type":"LORA","r":4,"lora_alpha":16,"use_rslora":true}`:                                                      8,
		`{"peft_type":"LORA","r":8,"lora_alpha":16,"rank_pattern":{"q_proj":4}}`:                                            4,
		`{"peft_type":"LORA","r":4,"lora_alpha":16,"alpha_pattern":{"self_attn.q_proj":2,"q_proj":3}}`:                      0.5,
		`{"peft_type":"LORA","r":4,"lora_alpha":16,"target_modules":"all-linear","init_lora_weights":true}`:                 4,
		`{"peft_type":"LORA","r":4,"lora_alpha":16,"target_modules":["model.layers.0.self_attn.q_proj"],"lora_bias":false}`: 4,
	} {
		a, err := Open(folder(t, config, PEFTWeights, pair...))
		require.NoError(t, err, config)
		require.InDelta(t, want, a.Modules[0].Scale, 1e-12, config)
		require.NoError(t, a.Close())
	}
}

// An adapter is taken whole or not at all, and the refusal names what stands in its way.
func TestMalformedAdaptersAreRefusedByName(t *testing.T) {
	a, b := tensor(mlxQ+".lora_a", artifact.F32, 3, 2), tensor(mlxQ+".lora_b", artifact.F32, 2, 4)
	pa, pb := tensor(peftQ+".lora_A.weight", artifact.F32, 2, 3), tensor(peftQ+".lora_B.weight", artifact.F32, 4, 2)
	type list = []artifact.NewTensor
	for name, c := range map[string]struct {
		config, weights string
		tensors         list
		kind            contract.Kind
		says            string
	}{
		"no config":        {"", MLXWeights, list{a, b}, contract.NotFound, ConfigFile},
		"no weights":       {peftConfig, "", nil, contract.NotFound, PEFTPickle},
		"other's weights":  {mlxConfig, PEFTWeights, list{a, b}, contract.NotFound, MLXWeights},
		"not JSON":         {`{"r":`, MLXWeights, list{a, b}, contract.ArtifactCorrupt, "not valid JSON"},
		"neither format":   {`{}`, MLXWeights, list{a, b}, contract.ArtifactCorrupt, "neither mlx-lm nor PEFT"},
		"DoRA of mlx-lm":   {`{"fine_tune_type":"dora","lora_parameters":{"rank":2,"scale":1}}`, MLXWeights, list{a, b}, contract.UnsupportedOption, "dora"},
		"whole layers":     {`{"fine_tune_type":"full","lora_parameters":{"rank":2,"scale":1}}`, MLXWeights, list{a, b}, contract.UnsupportedOption, "full"},
		"no scale":         {`{"lora_parameters":{"rank":2,"alpha":1}}`, MLXWeights, list{a, b}, contract.ArtifactCorrupt, "lora_parameters.scale"},
		"rank 0":           {`{"lora_parameters":{"rank":0,"scale":1}}`, MLXWeights, list{a, b}, contract.ArtifactCorrupt, "no rank"},
		"rank beyond all":  {`{"lora_parameters":{"rank":99999,"scale":1}}`, MLXWeights, list{a, b}, contract.ArtifactCorrupt, "no rank"},
		"another rank":     {`{"lora_parameters":{"rank":3,"scale":1}}`, MLXWeights, list{a, b}, contract.ArtifactCorrupt, "has rank 2, the config says 3"},
		"a half alone":     {mlxConfig, MLXWeights, list{a}, contract.ArtifactCorrupt, "other half is missing"},
		"halves apart":     {mlxConfig, MLXWeights, list{a, tensor(mlxQ+".lora_b", artifact.F32, 3, 4)}, contract.ArtifactCorrupt, "beside"},
		"a leftover":       {mlxConfig, MLXWeights, list{a, b, tensor(mlxQ+".m", artifact.F32, 4)}, contract.ArtifactCorrupt, mlxQ + ".m"},
		"an unlisted one":  {mlxConfig, MLXWeights, list{tensor("model.layers.0.mlp.up_proj.lora_a", artifact.F32, 3, 2), b, a}, contract.ArtifactCorrupt, "does not list model.layers.0.mlp.up_proj"},
		"experts":          {mlxConfig, MLXWeights, list{tensor(mlxQ+".lora_a", artifact.F32, 2, 3, 2), b}, contract.ArtifactCorrupt, "pairs of matrices"},
		"whole numbers":    {mlxConfig, MLXWeights, list{tensor(mlxQ+".lora_a", artifact.U8, 3, 2), b}, contract.ArtifactCorrupt, "U8"},
		"nothing":          {mlxConfig, MLXWeights, list{}, contract.ArtifactCorrupt, "holds no tensor"},
		"no prefix":        {peftConfig, PEFTWeights, list{tensor(mlxQ+".lora_A.weight", artifact.F32, 2, 3), pb}, contract.ArtifactCorrupt, "no half"},
		"DoRA of PEFT":     {`{"peft_type":"LORA","r":2,"lora_alpha":1,"use_dora":true}`, PEFTWeights, list{pa, pb}, contract.UnsupportedOption, "use_dora"},
		"another method":   {`{"peft_type":"IA3","r":2,"lora_alpha":1}`, PEFTWeights, list{pa, pb}, contract.UnsupportedOption, "IA3"},
		"biases":           {`{"peft_type":"LORA","r":2,"lora_alpha":1,"bias":"all"}`, PEFTWeights, list{pa, pb}, contract.UnsupportedOption, "bias"},
		"saved modules":    {`{"peft_type":"LORA","r":2,"lora_alpha":1,"modules_to_save":["lm_head"]}`, PEFTWeights, list{pa, pb}, contract.UnsupportedOption, "modules_to_save"},
		"a changed base":   {`{"peft_type":"LORA","r":2,"lora_alpha":1,"init_lora_weights":"pissa_niter_4"}`, PEFTWeights, list{pa, pb}, contract.UnsupportedOption, "pissa"},
		"an expression":    {`{"peft_type":"LORA","r":2,"lora_alpha":1,"rank_pattern":{"layers.[0-9]+.q_proj":2}}`, PEFTWeights, list{pa, pb}, contract.UnsupportedOption, "expression"},
		"alpha is a text":  {`{"peft_type":"LORA","r":2,"lora_alpha":"x"}`, PEFTWeights, list{pa, pb}, contract.ArtifactCorrupt, "lora_alpha"},
		"an infinite one":  {`{"peft_type":"LORA","r":2,"lora_alpha":Infinity}`, PEFTWeights, list{pa, pb}, contract.ArtifactCorrupt, "lora_alpha"},
		"a huge alpha":     {`{"peft_type":"LORA","r":2,"lora_alpha":1e308}`, PEFTWeights, list{pa, pb}, contract.ArtifactCorrupt, "adapter_config.json: lora_alpha: scales model.layers.0.self_attn.q_proj by 5e+307"},
		"a huge pattern":   {`{"peft_type":"LORA","r":2,"lora_alpha":1,"alpha_pattern":{"q_proj":-1e40}}`, PEFTWeights, list{pa, pb}, contract.ArtifactCorrupt, "alpha_pattern: scales"},
		"a huge scale":     {`{"lora_parameters":{"rank":2,"scale":1e39}}`, MLXWeights, list{a, b}, contract.ArtifactCorrupt, "lora_parameters.scale: scales"},
		"patterns of text": {`{"peft_type":"LORA","r":2,"lora_alpha":1,"alpha_pattern":{"q_proj":"x"}}`, PEFTWeights, list{pa, pb}, contract.ArtifactCorrupt, "alpha_pattern"},
	} {
		_, err := Open(folder(t, c.config, c.weights, c.tensors...))
		require.Error(t, err, name)
		require.Equal(t, c.kind, contract.KindOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, c.says, name)
	}
}

func TestAValueThatIsNotFiniteIsRefused(t *testing.T) {
	bad := tensor(mlxQ+".lora_a", artifact.F32, 3, 2)
	binary.LittleEndian.PutUint32(bad.Data[8:], math.Float32bits(float32(math.NaN())))
	a, err := Open(folder(t, mlxConfig, MLXWeights, bad, tensor(mlxQ+".lora_b", artifact.F32, 2, 4)))
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	_, err = a.Read(a.Modules[0].A)
	require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
}

func TestTheDigestIsOfWhatAnAdapterDoes(t *testing.T) {
	digest := func(config string, tensors ...artifact.NewTensor) string {
		a, err := Open(folder(t, config, MLXWeights, tensors...))
		require.NoError(t, err)
		defer func() { require.NoError(t, a.Close()) }()
		d, err := a.Digest()
		require.NoError(t, err)
		return d
	}
	a, b := tensor(mlxQ+".lora_a", artifact.F32, 3, 2), tensor(mlxQ+".lora_b", artifact.F32, 2, 4)
	first := digest(mlxConfig, a, b)
	require.Equal(t, first, digest(mlxConfig, a, b), "the folder does not matter")
	other := tensor(mlxQ+".lora_b", artifact.F32, 2, 4)
	other.Data[0] = 1
	require.NotEqual(t, first, digest(mlxConfig, a, other))
	require.NotEqual(t, first, digest(`{"lora_parameters":{"rank":2,"scale":19.0}}`, a, b))
}

func FuzzSettings(f *testing.F) {
	f.Add([]byte(mlxConfig))
	f.Add([]byte(peftConfig))
	f.Add([]byte(`{"peft_type":"LORA","r":4,"lora_alpha":1e-300,"use_rslora":true,"rank_pattern":{"a.b":3,"b":1},"alpha_pattern":{"":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := artifact.ParseConfig(ConfigFile, data)
		if err != nil {
			return
		}
		s, err := ParseSettings(c)
		if err != nil {
			require.Contains(t, []contract.Kind{contract.ArtifactCorrupt, contract.UnsupportedOption}, contract.KindOf(err))
			return
		}
		require.GreaterOrEqual(t, s.Rank, 1)
		require.LessOrEqual(t, s.rankOf("a.b.q_proj"), MaxRank)
		v := s.scaleOf("a.b.q_proj", s.Rank)
		require.False(t, math.IsNaN(v) || math.IsInf(v, 0))
	})
}
