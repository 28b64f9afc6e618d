package nn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
)

// RopeConfig says how positions rotate queries and keys. Kind picks the fields that are read; zero fields that mlx-lm has a
// default for are filled by Defaults.
type RopeConfig struct {
	Kind         RopeKind
	Dims         int // channels that rotate
	Base         float64
	Traditional  bool // pairs (2i, 2i+1); else (i, i+Dims/2)
	MaxPositions int

	Factor            float64
	OriginalPositions int       // llama3, yarn, longrope
	LowFreq, HighFreq float64   // llama3
	BetaFast          float64   // yarn
	BetaSlow          float64   // yarn
	MScale            float64   // yarn
	MScaleAllDim      float64   // yarn
	LongFactor        []float64 // longrope: one for each pair of channels
}

// RopeKind names a way to scale rotary frequencies, as rope_scaling spells it.
type RopeKind string

// The kinds that Rope computes.
const (
	RopeDefault  RopeKind = "default"
	RopeLinear   RopeKind = "linear"
	RopeLlama3   RopeKind = "llama3"
	RopeYarn     RopeKind = "yarn"
	RopeLongrope RopeKind = "longrope"
	RopeDynamic  RopeKind = "dynamic"
)

// ropeAliases are other spellings (mlx-lm 0.32.2, models/rope_utils.py); mrope is plain for text.
var ropeAliases = map[string]RopeKind{
	"": RopeDefault, "default": RopeDefault, "mrope": RopeDefault, "linear": RopeLinear, "llama3": RopeLlama3,
	"yarn": RopeYarn, "deepseek_yarn": RopeYarn, "telechat3-yarn": RopeYarn, "longrope": RopeLongrope, "su": RopeLongrope,
	"dynamic": RopeDynamic,
}

// ParseRopeKind reads rope_scaling's type; false for a kind that this package does not compute.
func ParseRopeKind(name string) (RopeKind, bool) {
	kind, ok := ropeAliases[name]
	return kind, ok
}

// Defaults fills what a config may leave out, as mlx-lm does.
func (c RopeConfig) Defaults() RopeConfig {
	fill := func(v *float64, value float64) {
		if *v == 0 {
			*v = value
		}
	}
	fill(&c.LowFreq, 1)
	fill(&c.HighFreq, 4)
	fill(&c.BetaFast, 32)
	fill(&c.BetaSlow, 1)
	fill(&c.MScale, 1)
	if c.OriginalPositions == 0 {
		c.OriginalPositions = 4096
		if c.Kind == RopeLlama3 {
			c.OriginalPositions = 8192
		}
	}
	return c
}

// Bounds of what a config may say: far beyond what models are published with, whose bases end at some 1e9 and whose stretches at some
// hundreds, and far from where float32 stops telling positions apart.
const (
	maxBase    = 1e12
	maxStretch = 1e5
)

// Check names what is missing or impossible.
func (c RopeConfig) Check() error {
	scaled := c.Kind == RopeLinear || c.Kind == RopeLlama3 || c.Kind == RopeYarn || c.Kind == RopeDynamic
	switch {
	case c.Dims <= 0 || c.Dims%2 != 0:
		return fmt.Errorf("%d rotary channels are not pairs", c.Dims)
	case !(c.Base > 1):
		return fmt.Errorf("rope_theta %g is not above 1", c.Base)
	case c.Base > maxBase:
		return fmt.Errorf("rope_theta %g is beyond %g, with which no model was trained", c.Base, maxBase)
	case scaled && !(c.Factor > 0):
		return fmt.Errorf("rope_scaling.factor %g is not positive", c.Factor)
	case scaled && c.Factor > maxStretch:
		return fmt.Errorf("rope_scaling.factor %g is beyond %g", c.Factor, maxStretch)
	case !finite(c.LowFreq, c.HighFreq, c.BetaFast, c.BetaSlow) || c.MScale < 0 || c.MScaleAllDim < 0 || !finite(c.MScale, c.MScaleAllDim):
		return errors.New("rope_scaling has a number that is not finite, or negative")
	case c.OriginalPositions <= 1:
		return fmt.Errorf("rope_scaling.original_max_position_embeddings %d is not above 1", c.OriginalPositions)
	case c.Kind == RopeLongrope && len(c.LongFactor) != c.Dims/2:
		return fmt.Errorf("rope_scaling.long_factor has %d values for %d pairs of channels", len(c.LongFactor), c.Dims/2)
	case c.Kind == RopeLongrope && !(slices.Min(c.LongFactor) > 0 && slices.Max(c.LongFactor) <= maxStretch && finite(c.LongFactor...)):
		return fmt.Errorf("rope_scaling.long_factor has a value that is not in (0, %g]", maxStretch)
	case (c.Kind == RopeLongrope || c.Kind == RopeDynamic) && c.MaxPositions <= 0:
		return fmt.Errorf("%s needs max_position_embeddings", c.Kind)
	case c.Kind == RopeDynamic && (c.Dims < 4 || c.Factor < 1):
		return fmt.Errorf("a dynamic base needs four rotary channels and a factor of 1 at least, not %d and %g", c.Dims, c.Factor)
	case c.Kind == RopeLlama3 && c.HighFreq == c.LowFreq:
		return fmt.Errorf("rope_scaling.low_freq_factor and high_freq_factor are both %g", c.LowFreq)
	}
	return nil
}

func finite(values ...float64) bool {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// Rope rotates queries and keys by their positions.
type Rope struct {
	args    mlx.RoPE
	mscale  float64     // multiplies the rotating channels first; 1 for most kinds
	invFreq *mlx.Array  // [dims/2] float32, for the kernels
	dynamic *RopeConfig // whose base grows with the sequence; nil for all other kinds
}

// NewRope computes the frequencies in MLX float32 operations, in mlx-lm's order, so that they have its bits. The Rope keeps
// an array that Close frees.
func NewRope(s *mlx.Scope, c RopeConfig) *Rope {
	r := &Rope{args: mlx.RoPE{Dims: c.Dims, Traditional: c.Traditional, Base: float32(c.Base), Scale: 1}, mscale: 1}
	switch c.Kind {
	case RopeLinear:
		r.args.Scale = float32(1 / c.Factor)
	case RopeLlama3:
		r.args.Freqs = llama3Freqs(s, c)
	case RopeYarn:
		r.args.Freqs = yarnFreqs(s, c)
		r.mscale = yarnMScale(c.Factor, c.MScale) / yarnMScale(c.Factor, c.MScaleAllDim)
	case RopeLongrope:
		r.args.Freqs = s.Mul(mlx.FromSlice(s, float32s(c.LongFactor)), baseFreqs(s, c))
		if ratio := float64(c.MaxPositions) / float64(c.OriginalPositions); ratio > 1 {
			r.mscale = math.Sqrt(1 + math.Log(ratio)/math.Log(float64(c.OriginalPositions)))
		}
	}
	if c.Kind == RopeDynamic {
		r.dynamic = &c
	}
	return r.keep(s)
}

// Grows reports whether a sequence of end tokens rotates by another base than a shorter one.
func (r *Rope) Grows(end int) bool { return r.dynamic != nil && end > r.dynamic.MaxPositions }

// base is that of a forward whose last token ends the sequence at end.
func (r *Rope) base(end int) float32 {
	if !r.Grows(end) {
		return r.args.Base
	}
	c := r.dynamic
	grown := c.Factor*float64(end)/float64(c.MaxPositions) - (c.Factor - 1)
	return float32(c.Base * math.Pow(grown, float64(c.Dims)/float64(c.Dims-2)))
}

// keep evaluates the frequencies and their inverses, as fast.rope would take them, and moves them out of the scope. A failure
// stays in s.
func (r *Rope) keep(s *mlx.Scope) *Rope {
	if r.args.Freqs != nil {
		r.invFreq = s.Reciprocal(r.args.Freqs)
		_ = s.Eval(r.args.Freqs)
		s.Keep(r.args.Freqs)
	} else {
		r.invFreq = inverse(s, r.args.Dims, r.args.Base)
	}
	_ = s.Eval(r.invFreq)
	s.Keep(r.invFreq)
	return r
}

// inverse is the frequencies of a base, as fast.rope computes them.
func inverse(s *mlx.Scope, dims int, base float32) *mlx.Array {
	half := float64(dims / 2)
	steps := s.Arange(0, -half, -1, mlx.Float32)
	return s.Exp(s.MulScalar(steps, float64(float32(math.Log(float64(base))))/half))
}

// Kernel sets what the attention kernel reads of the rotation in a forward that ends its sequence at end.
func (r *Rope) Kernel(s *mlx.Scope, end int, a *mlx.PackedAttention) {
	a.RopeDims, a.RopeTraditional, a.InvFreq = r.args.Dims, r.args.Traditional, r.invFreq
	a.RopeScale, a.RopeMScale = r.args.Scale, float32(r.mscale)
	if r.Grows(end) {
		a.InvFreq = inverse(s, r.args.Dims, r.base(end))
	}
}

// NewRopeFactors is the rope of a file that stores a divisor for each frequency (GGUF's rope_freqs.weight and rope_factors_long.weight,
// [dims/2]). c.MScale multiplies the rotating channels; 0 is 1.
func NewRopeFactors(s *mlx.Scope, c RopeConfig, factors *mlx.Array) *Rope {
	freqs := s.Mul(s.AsType(factors, mlx.Float32), baseFreqs(s, c))
	return (&Rope{args: mlx.RoPE{Dims: c.Dims, Traditional: c.Traditional, Scale: 1, Freqs: freqs}, mscale: cmp.Or(c.MScale, 1)}).keep(s)
}

// Close frees the frequencies.
func (r *Rope) Close() {
	r.args.Freqs.Close()
	r.invFreq.Close()
}

// Forward rotates x [B, H, T, D], whose first row stands at position offset.
func (r *Rope) Forward(s *mlx.Scope, x *mlx.Array, offset int) *mlx.Array {
	if r.mscale != 1 {
		x = r.scaled(s, x)
	}
	args := r.args
	if r.dynamic != nil && x.NDim() == 4 {
		args.Base = r.base(offset + x.Dim(2))
	}
	return s.RoPE(x, args, offset)
}

func (r *Rope) scaled(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	d, width := r.args.Dims, x.Dim(-1)
	if d == width {
		return s.MulScalar(x, r.mscale)
	}
	return s.Concat(-1, s.MulScalar(s.SliceAxis(x, -1, 0, d), r.mscale), s.SliceAxis(x, -1, d, width))
}

// baseFreqs is base^(2i/dims) for each pair: the reciprocals of the inverse frequencies, as fast.rope wants them.
func baseFreqs(s *mlx.Scope, c RopeConfig) *mlx.Array {
	exponents := s.DivScalar(s.Arange(0, float64(c.Dims), 2, mlx.Float32), float64(c.Dims))
	return s.Pow(s.Scalar(c.Base, mlx.Float32), exponents)
}

// llama3Freqs leaves short wavelengths, stretches long ones by the factor, and blends between.
func llama3Freqs(s *mlx.Scope, c RopeConfig) *mlx.Array {
	freqs := baseFreqs(s, c)
	scalar := func(v float64) *mlx.Array { return s.Scalar(v, mlx.Float32) }
	original := float64(c.OriginalPositions)
	lowWavelen, highWavelen := scalar(original/c.LowFreq), scalar(original/c.HighFreq)

	wavelens := s.Mul(scalar(2*math.Pi), freqs)
	stretched := s.Where(s.Greater(wavelens, lowWavelen), s.MulScalar(freqs, c.Factor), freqs)
	medium := s.LogicalAnd(s.Greater(wavelens, highWavelen), s.Less(wavelens, lowWavelen))
	smooth := s.DivScalar(s.SubScalar(s.Div(scalar(original), wavelens), c.LowFreq), c.HighFreq-c.LowFreq)
	blend := s.Add(s.DivScalar(s.Sub(scalar(1), smooth), c.Factor), smooth)
	return s.Where(medium, s.Div(stretched, blend), stretched)
}

// yarnFreqs blends stretched and plain frequencies along a ramp over the pairs.
func yarnFreqs(s *mlx.Scope, c RopeConfig) *mlx.Array {
	low, high := yarnRange(c)
	if low == high {
		high += 0.001
	}
	plain := baseFreqs(s, c)
	stretched := s.MulScalar(plain, c.Factor)
	ramp := s.DivScalar(s.SubScalar(s.Arange(0, float64(c.Dims/2), 1, mlx.Float32), low), high-low)
	one := s.Scalar(1, mlx.Float32)
	mask := s.Sub(one, s.Clip(ramp, s.Scalar(0, mlx.Float32), one))
	return s.Div(s.Mul(stretched, plain), s.Add(s.Mul(stretched, mask), s.Mul(plain, s.Sub(one, mask))))
}

// yarnRange is the span of pairs whose rotations over the original context lie between BetaFast and BetaSlow.
func yarnRange(c RopeConfig) (low, high float64) {
	pair := func(rotations float64) float64 {
		return float64(c.Dims) * math.Log(float64(c.OriginalPositions)/(rotations*2*math.Pi)) / (2 * math.Log(c.Base))
	}
	low, high = math.Floor(pair(c.BetaFast)), math.Ceil(pair(c.BetaSlow))
	return max(low, 0), min(high, float64(c.Dims-1))
}

func yarnMScale(scale, mscale float64) float64 {
	if scale <= 1 {
		return 1
	}
	return 0.1*mscale*math.Log(scale) + 1
}

func float32s(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}
