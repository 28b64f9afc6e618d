package dense

import (
	"slices"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/nn"
	"github.com/clademl/clade/sdk/weights"
)

// Divisors of rotary frequencies that llama.cpp's converter stores: where a llama3 scaling was, and those for long and short contexts, of
// which mlx-lm takes the long ones whatever the length.
const (
	ggufFreqs = "rope_freqs.weight"
	ggufLong  = "rope_factors_long.weight"
	ggufShort = "rope_factors_short.weight"
)

// stated is what a GGUF says, before a record fills what it leaves out; nil for other formats.
func stated(a *artifact.Artifact) *artifact.Config {
	if a.Format != artifact.GGUF {
		return nil
	}
	c := a.Config()
	return &c
}

// lookup is what the config says at key; nil for nothing.
func (r reader) lookup(key string) any {
	v, _ := r.parsed.Lookup(key)
	return v
}

// says reports whether the GGUF itself does.
func (r reader) says(key string) bool {
	v, _ := r.stated.Lookup(key)
	return v != nil
}

// kind is the row's name.
func (r reader) kind() string {
	kind := r.Text("model_type")
	if slides := rows[kind].GGUF.Slides; r.gguf && slides != "" && r.Int("sliding_window") > 0 {
		return slides
	}
	return kind
}

// layerTypes are the config's. A GGUF may name a window and leave it to the architecture which layers have it; one that names none has
// none, whatever a config.json of the type would mean.
func (r reader) layerTypes(c *Config) []string {
	types := r.Texts("layer_types")
	if !r.gguf {
		return types
	}
	window, period := r.says("sliding_window") && r.Int("sliding_window") > 0, c.GGUF.Period
	if window && (period == 0 || r.says("layer_types")) {
		return types
	}
	out := slices.Clone(types)
	for i := range out {
		out[i] = "full_attention"
		if window && (i+1)%period != 0 {
			out[i] = "sliding_attention"
		}
	}
	return out
}

// ggufRope reads how a GGUF scales positions. What it stores as divisors is read with the tensors (Config.divisors).
func (r reader) ggufRope(c *Config, dims int) nn.RopeConfig {
	const scaling = "rope_scaling."
	var rope nn.RopeConfig
	if kind, _ := nn.ParseRopeKind(r.Text(scaling + "rope_type")); kind == nn.RopeLongrope {
		c.factored = true
		rope = nn.RopeConfig{
			Kind: nn.RopeDefault, Dims: dims, Base: r.Float("rope_theta"), Traditional: r.Flag("rope_traditional"), MaxPositions: c.MaxPositions,
		}.Defaults()
		if err := rope.Check(); err != nil {
			r.Corrupt("rope_theta", "%w", err)
		}
	} else {
		rope = nn.ReadRope(r.Fields, dims, c.MaxPositions)
	}
	if !r.Has(scaling+"original_max_position_embeddings") && c.MaxPositions > 1 {
		rope.OriginalPositions = c.MaxPositions
	} else if n := r.Int(scaling + "original_max_position_embeddings"); n > 1 {
		rope.OriginalPositions = n
	}
	rope.MScale = r.number(scaling+"attention_factor", 1)
	plain := 0.0
	if rope.Kind == nn.RopeYarn {
		plain = 1
	}
	if v := r.Float(scaling + "extrapolation_factor"); r.Has(scaling+"extrapolation_factor") && v != plain {
		r.Unsupported(scaling+"extrapolation_factor", "%g is not computed for rotary positions of type %q", v, rope.Kind)
	}
	return rope
}

// refuse names what a GGUF asks for beyond its row.
func (r reader) refuse(c *Config) {
	if !r.gguf {
		return
	}
	for _, ask := range []struct {
		key   string
		heard bool
	}{
		{"attn_logit_softcapping", c.AttnCap != ""},
		{"final_logit_softcapping", c.FinalCap != ""},
		{"embedding_multiplier", c.EmbedBy != ""},
		{"residual_multiplier", c.Residual != "" || c.Depth != ""},
		{"logits_scaling", c.DivideBy != "" || c.TimesBy != "" || c.WidthBase != ""},
		{"attention_multiplier", c.ScaleBy != ""},
		{"llama_4_scaling_beta", c.QueryBeta != ""},
		{"mrope_section", false},
	} {
		if v, _ := r.stated.Lookup(ask.key); v != nil && v != 0.0 && v != int64(0) && !ask.heard {
			r.Unsupported(ask.key, "this architecture's graph has none, and the file asks for it")
		}
	}
	if r.says("is_causal") && !r.Flag("is_causal") {
		r.Unsupported("is_causal", "attention that sees what comes is not computed")
	}
	if r.says("rope_local_base_freq") && c.LocalTheta != "rope_local_base_freq" && r.Float("rope_local_base_freq") != r.Float("rope_theta") {
		r.Unsupported("rope_local_base_freq", "sliding layers of this architecture have the base of all")
	}
	value := c.HeadDim
	if c.Latent {
		value = c.Latents.Value
	}
	if r.says("value_head_dim") && r.Int("value_head_dim") != value {
		r.Unsupported("value_head_dim", "values of %d channels, this architecture's have %d", r.Int("value_head_dim"), value)
	}
	if c.NoRope == allFull && !r.says("sliding_window") {
		r.Corrupt("sliding_window", "the file names none, and layers of this architecture slide")
	}
}

// divisors adds the tensor of rotary divisors that the file has, and refuses what it cannot stand beside.
func (c *Config) divisors(a *artifact.Artifact, params []weights.Param) ([]weights.Param, error) {
	f := a.Config().Fields()
	_, freqs := a.Tensor(ggufFreqs)
	_, long := a.Tensor(ggufLong)
	_, short := a.Tensor(ggufShort)
	const scaling = "rope_scaling"
	switch {
	case freqs && (long || short), short && !long:
		f.Corrupt(scaling, "the file has rotary divisors of more than one kind, or for short contexts alone")
	case c.factored && !long:
		f.Corrupt(scaling, "longrope without the tensor %s", ggufLong)
	case (freqs || long) && c.Rope.Kind != nn.RopeDefault:
		f.Unsupported(scaling, "rotary divisors beside positions of type %q are not computed", c.Rope.Kind)
	case !freqs && !long && c.Rope.MScale != 1:
		f.Unsupported(scaling+".attention_factor", "%g without rotary divisors is not computed", c.Rope.MScale)
	case freqs:
		params = append(params, weights.Param{Name: ggufFreqs, Shape: []int{c.Rope.Dims / 2}})
	case long:
		params = append(params, weights.Param{Name: ggufLong, Shape: []int{c.Rope.Dims / 2}})
	}
	return params, f.Err()
}
