package dense

import (
	"fmt"
	"slices"

	"github.com/clademl/clade/sdk/nn"
)

// positions reads how layers rotate.
func (r reader) positions(c *Config) {
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		if _, ok := r.lookup(key).(map[string]any); r.Has(key) && !ok {
			r.Corrupt(key, "is no object that says how positions are scaled")
			return
		}
	}
	dims := c.HeadDim
	switch {
	case c.Latent:
		dims = c.Latents.Rotated
	case c.Partial != "" && !r.gguf:
		dims = int(float64(c.HeadDim) * r.number(c.Partial, 1))
	}
	if given := r.Int("rotary_dim"); given != 0 && r.gguf && !c.Latent {
		dims = given
	}
	if dims < 2 || dims > c.HeadDim || dims%2 != 0 {
		r.Corrupt("head_dim", "%d of %d channels cannot rotate in pairs", dims, c.HeadDim)
		return
	}
	if r.gguf {
		c.Rope = r.ggufRope(c, dims)
	} else {
		c.Rope = nn.ReadRope(r.Fields, dims, c.MaxPositions)
	}
	if c.Original != "" && r.Int(string(c.Original)) > 1 {
		c.Rope.OriginalPositions = r.Int(string(c.Original))
	}
	if c.LocalTheta != "" {
		local := nn.RopeConfig{Dims: dims, Base: r.Float(string(c.LocalTheta)), Traditional: c.Rope.Traditional, Kind: nn.RopeDefault}.Defaults()
		if err := local.Check(); err != nil {
			r.Corrupt(string(c.LocalTheta), "%w", err)
		}
		c.LocalRope = &local
	}
	c.Rotates = r.rotates(c)
	if _, ok := r.parsed.Lookup("rope_parameters"); ok {
		c.Notes = append(c.Notes, fmt.Sprintf("positions follow rope_parameters of %s: base %g, type %s", r.parsed.Name(), c.Rope.Base, c.Rope.Kind))
	}
}

// rotates says which layers rotate.
func (r reader) rotates(c *Config) []bool {
	out := slices.Repeat([]bool{true}, c.Layers)
	if r.gguf && c.GGUF.Still && r.Has("rope_finetuned") && !r.Flag("rope_finetuned") {
		return make([]bool, c.Layers)
	}
	switch c.NoRope {
	case listed:
		list := r.Ints("no_rope_layers")
		if len(list) != c.Layers {
			r.Corrupt("no_rope_layers", "%d entries for %d layers", len(list), c.Layers)
			return out
		}
		for i, v := range list {
			out[i] = v != 0
		}
	case fullLayers:
		slides := slices.ContainsFunc(c.Windows, func(w int) bool { return w > 0 })
		for i, w := range c.Windows {
			out[i] = w > 0 || !slides
		}
	case allFull:
		for i, w := range c.Windows {
			out[i] = w > 0
		}
	case none:
	}
	return out
}
