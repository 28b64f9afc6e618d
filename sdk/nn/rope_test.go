package nn

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/mlx"
)

// rotate is rope in float64: pairs (i, i+dims/2), or neighbours, by position * inverse frequency.
func rotate(x []float32, position float64, inverse func(i int) float64, dims int, neighbours bool, mscale float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	for i := range dims / 2 {
		a, b := i, i+dims/2
		if neighbours {
			a, b = 2*i, 2*i+1
		}
		sin, cos := math.Sincos(position * inverse(i))
		u, v := float64(x[a])*mscale, float64(x[b])*mscale
		out[a], out[b] = u*cos-v*sin, u*sin+v*cos
	}
	return out
}

func TestRopeIsItsEquation(t *testing.T) {
	const dims, base = 16, 10000.0
	plain := func(i int) float64 { return math.Pow(base, -2*float64(i)/dims) }
	factors := []float32{1, 1, 1, 1.25, 2, 3.5, 6, 8}
	long := []float64{1, 1.1, 1.3, 1.8, 2.5, 4, 6, 9}
	tests := []struct {
		name    string
		config  RopeConfig
		factors []float32
		inverse func(i int) float64
		mscale  float64
	}{
		{"default", RopeConfig{Kind: RopeDefault}, nil, plain, 1},
		{"traditional", RopeConfig{Kind: RopeDefault, Traditional: true}, nil, plain, 1},
		{"linear", RopeConfig{Kind: RopeLinear, Factor: 4}, nil, func(i int) float64 { return plain(i) / 4 }, 1},
		{"a GGUF's divisors", RopeConfig{Kind: RopeDefault}, factors, func(i int) float64 { return plain(i) / float64(factors[i]) }, 1},
		{
			"longrope",
			RopeConfig{Kind: RopeLongrope, LongFactor: long, MaxPositions: 512, OriginalPositions: 64},
			nil,
			func(i int) float64 { return plain(i) / long[i] }, math.Sqrt(1 + math.Log(8)/math.Log(64)),
		},
		{"llama3", RopeConfig{Kind: RopeLlama3, Factor: 8, OriginalPositions: 64, LowFreq: 1, HighFreq: 4}, nil, func(i int) float64 {
			wave := 2 * math.Pi / plain(i)
			switch {
			case wave > 64:
				return plain(i) / 8
			case wave < 16:
				return plain(i)
			}
			smooth := (64/wave - 1) / 3
			return (1-smooth)*plain(i)/8 + smooth*plain(i)
		}, 1},
	}
	do(t, func(s *mlx.Scope, _ *mlx.Kernels) {
		x := wave(2*dims, 0.4)
		for _, tt := range tests {
			tt.config.Dims, tt.config.Base = dims, base
			c := tt.config.Defaults()
			require.NoError(t, c.Check(), tt.name)
			r := NewRope(s, c)
			if tt.factors != nil {
				r.Close()
				r = NewRopeFactors(s, c, mlx.FromSlice(s, tt.factors))
			}
			for _, offset := range []int{0, 3, 100} {
				got := values(t, s, r.Forward(s, mlx.FromSlice(s, x, 1, 1, 2, dims), offset))
				for row := range 2 {
					want := rotate(x[row*dims:(row+1)*dims], float64(offset+row), tt.inverse, dims, c.Traditional, tt.mscale)
					requireNear(t, want, got[row*dims:(row+1)*dims], tt.name)
				}
			}
			// What the attention kernel reads says the same.
			var a mlx.PackedAttention
			r.Kernel(s, 1, &a)
			require.Equal(t, dims, a.RopeDims)
			for i, v := range values(t, s, a.InvFreq) {
				require.InEpsilon(t, tt.inverse(i), float64(v)*float64(a.RopeScale), 1e-5, "%s frequency %d", tt.name, i)
			}
			require.InDelta(t, tt.mscale, float64(a.RopeMScale), 1e-6)
			r.Close()
		}
	})
}

func TestOnlyTheRotaryChannelsRotate(t *testing.T) {
	do(t, func(s *mlx.Scope, _ *mlx.Kernels) {
		c := RopeConfig{Kind: RopeLongrope, Dims: 8, Base: 100, LongFactor: []float64{1, 2, 3, 4}, MaxPositions: 128, OriginalPositions: 32}.Defaults()
		r := NewRope(s, c)
		x := wave(16, 0.4)
		got := values(t, s, r.Forward(s, mlx.FromSlice(s, x, 1, 1, 1, 16), 5))
		require.Equal(t, x[8:], got[8:])
		require.NotEqual(t, x[:8], got[:8])
		r.Close()
	})
}

func TestAnImpossibleRopeIsNamed(t *testing.T) {
	good := RopeConfig{Kind: RopeDefault, Dims: 8, Base: 10000}
	tests := map[string]func(c *RopeConfig){
		"7 rotary channels are not pairs":       func(c *RopeConfig) { c.Dims = 7 },
		"rope_theta 1 is not above 1":           func(c *RopeConfig) { c.Base = 1 },
		"rope_theta -10000 is not above 1":      func(c *RopeConfig) { c.Base = -10000 },
		"rope_theta 1e+18 is beyond 1e+12":      func(c *RopeConfig) { c.Base = 1e18 },
		"rope_scaling.factor 1e+18 is beyond":   func(c *RopeConfig) { c.Kind, c.Factor = RopeLinear, 1e18 },
		"rope_theta NaN is not above 1":         func(c *RopeConfig) { c.Base = math.NaN() },
		"rope_scaling.factor 0 is not positive": func(c *RopeConfig) { c.Kind = RopeLinear },
		"a dynamic base needs four rotary":      func(c *RopeConfig) { c.Kind, c.Factor, c.MaxPositions = RopeDynamic, 0.5, 64 },
		"long_factor has 0 values for 4 pairs":  func(c *RopeConfig) { c.Kind = RopeLongrope },
		"longrope needs max_position":           func(c *RopeConfig) { c.Kind, c.LongFactor = RopeLongrope, []float64{1, 1, 1, 1} },
		"are both 2":                            func(c *RopeConfig) { c.Kind, c.Factor, c.LowFreq, c.HighFreq = RopeLlama3, 2, 2, 2 },
	}
	require.NoError(t, good.Defaults().Check())
	for says, spoil := range tests {
		c := good
		spoil(&c)
		require.ErrorContains(t, c.Defaults().Check(), says)
	}
	for name, known := range map[string]bool{"": true, "su": true, "deepseek_yarn": true, "mrope": true, "dynamic": true, "ntk": false} {
		_, ok := ParseRopeKind(name)
		require.Equal(t, known, ok, name)
	}
}

// What no model was trained with is a damaged file, and the field is named; what models are published with is taken.
func TestAbsurdNumbersOfAConfigAreNamedByField(t *testing.T) {
	read := func(config string) error {
		c, err := artifact.ParseConfig("config.json", []byte(config))
		require.NoError(t, err)
		f := c.Fields()
		ReadEps(f, "rms_norm_eps")
		ReadRope(f, 8, 4096)
		return f.Err()
	}
	for _, theta := range []string{"10000", "1e6", "1e7", "1e9", "3580165449"} {
		require.NoError(t, read(`{"rms_norm_eps":1e-6,"rope_theta":`+theta+`}`), theta)
	}
	for _, eps := range []string{"1e-12", "1e-8", "1e-5", "1e-2"} {
		require.NoError(t, read(`{"rms_norm_eps":`+eps+`,"rope_theta":1e4}`), eps)
	}
	for config, says := range map[string]string{
		`{"rms_norm_eps":1e-6,"rope_theta":1e18}`:                                               "config.json: rope_theta: 1e+18 is not in (1, 1e+12]",
		`{"rms_norm_eps":1e-6,"rope_theta":-10000}`:                                             "config.json: rope_theta: -10000 is not in",
		`{"rms_norm_eps":1e-6,"rope_theta":0}`:                                                  "config.json: rope_theta: 0 is not in",
		`{"rms_norm_eps":1e18,"rope_theta":1e4}`:                                                "config.json: rms_norm_eps: 1e+18 is no epsilon",
		`{"rms_norm_eps":0,"rope_theta":1e4}`:                                                   "config.json: rms_norm_eps: 0 is no epsilon",
		`{"rms_norm_eps":-1e-6,"rope_theta":1e4}`:                                               "config.json: rms_norm_eps: -1e-06 is no epsilon",
		`{"rms_norm_eps":1e-6,"rope_theta":1e4,"rope_scaling":{"type":"linear","factor":1e18}}`: "rope_scaling.factor 1e+18 is beyond",
	} {
		err := read(config)
		require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err), config)
		require.ErrorContains(t, err, says)
	}
}
