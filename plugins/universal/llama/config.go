package llama

import (
	"fmt"
	"math"
	"slices"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/nn"
)

// Config is the canonical config of the family's record: its dialect has filled every default.
type Config struct {
	HiddenSize, IntermediateSize, VocabSize int
	Layers, Heads, KVHeads, HeadDim         int
	RMSNormEps                              float32
	AttentionBias, MLPBias, Tied            bool
	Rope                                    nn.RopeConfig
	// Windows has one entry a layer: how many tokens back it sees, 0 for all.
	Windows []int
	// MaxPositions is the trained context; 0 when the config states none.
	MaxPositions int
	EOS          []int32
}

// ReadConfig reads a config that the record parsed. A field that is missing or impossible is ArtifactCorrupt naming it; a
// variant that this graph does not compute is UnsupportedModel.
func ReadConfig(parsed artifact.Config) (Config, error) {
	r := reader{config: parsed}
	c := Config{
		HiddenSize: r.size("hidden_size"), IntermediateSize: r.size("intermediate_size"), VocabSize: r.size("vocab_size"),
		Layers: r.size("num_hidden_layers"), Heads: r.size("num_attention_heads"), KVHeads: r.size("num_key_value_heads"),
		HeadDim: r.size("head_dim"), RMSNormEps: float32(r.float("rms_norm_eps")),
		AttentionBias: r.flag("attention_bias"), MLPBias: r.flag("mlp_bias"), Tied: r.flag("tie_word_embeddings"),
		MaxPositions: r.int("max_position_embeddings"), EOS: r.ids("eos_token_ids"),
	}
	c.Windows = r.windows(c.Layers)
	c.Rope = r.rope(c.HeadDim, c.MaxPositions)
	if r.err == nil && c.Heads%c.KVHeads != 0 {
		r.fail("num_key_value_heads", "%d heads are no multiple of %d", c.Heads, c.KVHeads)
	}
	return c, r.err
}

// Caches is what each layer keeps.
func (c Config) Caches() []kv.Spec {
	out := make([]kv.Spec, c.Layers)
	for i := range out {
		out[i] = kv.Spec{Heads: c.KVHeads, HeadDim: c.HeadDim, Window: c.Windows[i]}
	}
	return out
}

// reader keeps the first error, so that a config reads as a list of fields.
type reader struct {
	config artifact.Config
	err    error
}

func (r *reader) fail(path, format string, args ...any) {
	if r.err == nil {
		r.err = contract.Errorf(contract.ArtifactCorrupt, r.config.Name()+": "+path, format, args...)
	}
}

func (r *reader) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) unsupported(path, format string, args ...any) {
	if r.err == nil {
		r.err = contract.Errorf(contract.UnsupportedModel, r.config.Name()+": "+path, format, args...)
	}
}

// int is 0 when the field is absent.
func (r *reader) int(path string) int {
	v, _, err := r.config.Int(path)
	r.keep(err)
	if v < 0 || v > math.MaxInt32 {
		r.fail(path, "%d is out of range", v)
		return 0
	}
	return int(v)
}

func (r *reader) size(path string) int {
	v := r.int(path)
	if v == 0 {
		r.fail(path, "must be a positive integer")
		return 1
	}
	return v
}

func (r *reader) float(path string) float64 {
	v, _, err := r.config.Float(path)
	r.keep(err)
	return v
}

func (r *reader) flag(path string) bool {
	v, _, err := r.config.Bool(path)
	r.keep(err)
	return v
}

func (r *reader) ids(path string) []int32 {
	list, _, err := r.config.Ints(path)
	r.keep(err)
	var out []int32
	for _, v := range list {
		if v < 0 || v > math.MaxInt32 {
			r.fail(path, "%d is no token id", v)
		}
		out = append(out, int32(v))
	}
	return out
}

// windows reads layer_types; a bare sliding_window without them changes nothing, as in mlx-lm.
func (r *reader) windows(layers int) []int {
	types, _, err := r.config.Strings("layer_types")
	r.keep(err)
	if len(types) != layers {
		r.fail("layer_types", "%d types for %d layers", len(types), layers)
		return make([]int, layers)
	}
	out := make([]int, layers)
	for i, t := range types {
		switch t {
		case "full_attention":
		case "sliding_attention":
			out[i] = r.size("sliding_window")
		default:
			r.unsupported(fmt.Sprintf("layer_types[%d]", i), "attention of type %q is not computed", t)
		}
	}
	return out
}

func (r *reader) rope(headDim, maxPositions int) nn.RopeConfig {
	const scaling = "rope_scaling."
	name, _, err := r.config.String(scaling + "type") // mlx-lm prefers it over rope_type
	r.keep(err)
	if name == "" {
		name, _, err = r.config.String(scaling + "rope_type")
		r.keep(err)
	}
	kind, ok := nn.ParseRopeKind(name)
	if !ok {
		r.unsupported("rope_scaling", "rotary positions of type %q are not computed", name)
	}
	if dims := r.int("rotary_dim"); dims != 0 && dims != headDim {
		r.unsupported("rotary_dim", "%d of %d channels rotate, which this graph does not compute", dims, headDim)
	}
	c := nn.RopeConfig{
		Kind: kind, Dims: headDim, Base: r.float("rope_theta"), Traditional: r.flag("rope_traditional"),
		MaxPositions: maxPositions, Factor: r.float(scaling + "factor"),
		OriginalPositions: r.int(scaling + "original_max_position_embeddings"),
		LowFreq:           r.float(scaling + "low_freq_factor"), HighFreq: r.float(scaling + "high_freq_factor"),
		BetaFast: r.float(scaling + "beta_fast"), BetaSlow: r.float(scaling + "beta_slow"),
		MScale: r.float(scaling + "mscale"), MScaleAllDim: r.float(scaling + "mscale_all_dim"),
		LongFactor: r.floats(scaling + "long_factor"),
	}.Defaults()
	if err := c.Check(); err != nil {
		r.fail("rope_scaling", "%w", err)
	}
	return c
}

func (r *reader) floats(path string) []float64 {
	v, _ := r.config.Lookup(path)
	list, _ := v.([]any)
	out := make([]float64, 0, len(list))
	for i := range list {
		out = append(out, r.float(fmt.Sprintf("%s.%d", path, i)))
	}
	return slices.Clip(out)
}
