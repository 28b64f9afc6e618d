package nn

import "github.com/clademl/clade/sdk/artifact"

// ReadRope reads rope_theta and rope_scaling as mlx-lm does, for heads of dims channels that rotate.
func ReadRope(f *artifact.Fields, dims, maxPositions int) RopeConfig {
	const scaling = "rope_scaling."
	f.Object("rope_scaling")
	name := f.Text(scaling + "type") // mlx-lm prefers it over rope_type
	if name == "" {
		name = f.Text(scaling + "rope_type")
	}
	kind, ok := ParseRopeKind(name)
	if !ok {
		f.Unsupported("rope_scaling", "rotary positions of type %q are not computed", name)
	}
	c := RopeConfig{
		Kind: kind, Dims: dims, Base: f.Float("rope_theta"), Traditional: f.Flag("rope_traditional"), MaxPositions: maxPositions,
		Factor: f.Float(scaling + "factor"), OriginalPositions: f.Int(scaling + "original_max_position_embeddings"),
		LowFreq: f.Float(scaling + "low_freq_factor"), HighFreq: f.Float(scaling + "high_freq_factor"),
		BetaFast: f.Float(scaling + "beta_fast"), BetaSlow: f.Float(scaling + "beta_slow"),
		MScale: f.Float(scaling + "mscale"), MScaleAllDim: f.Float(scaling + "mscale_all_dim"),
		LongFactor: f.Floats(scaling + "long_factor"),
	}.Defaults()
	if f.Has(scaling + "mscale") { // none is another thing than 0
		c.MScale = f.Float(scaling + "mscale")
	}
	for _, key := range []string{"low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "original_max_position_embeddings"} {
		if f.Has(scaling+key) && !(f.Float(scaling+key) > 0) {
			f.Corrupt(scaling+key, "%g is not positive", f.Float(scaling+key))
		}
	}
	if !(c.Base > 1) || c.Base > maxBase {
		f.Corrupt("rope_theta", "%g is not in (1, %g]", c.Base, maxBase)
	}
	if err := c.Check(); err != nil && f.Err() == nil {
		f.Corrupt("rope_scaling", "%w", err)
	}
	return c
}
