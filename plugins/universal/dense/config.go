package dense

import (
	"fmt"
	"math"
	"slices"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/nn"
)

// Config is a row with the numbers of one model: the canonical config of the family's record, whose dialect has filled every
// default.
type Config struct {
	kind                                    string // of the table
	Row                                            // its switches are settled: always or never
	HiddenSize, IntermediateSize, VocabSize int
	Layers, Heads, KVHeads, HeadDim         int
	Eps                                     float32
	Tied                                    bool

	EmbedScale, ResidualScale      float64 // 1 for none
	AttentionScale                 float32
	HeadDivisor, LogitScale        float64 // of hidden states in front of the head; of logits
	LogitDivisor                   float64
	AttentionSoftcap, FinalSoftcap float64 // 0 for none
	Latents                        Latents // of MLA
	QueryGrowth                    float64 // beta of ministral3
	Rope                           nn.RopeConfig
	LocalRope                      *nn.RopeConfig // of sliding layers, where they have their own
	factored                       bool           // a GGUF wants a tensor of long-context divisors
	Rotates                        []bool         // by layer
	// Windows has one entry a layer: how many tokens back it sees, 0 for all.
	Windows []int
	// MaxPositions is the trained context; 0 when the config states none.
	MaxPositions int
	EOS          []int32
	// Notes are what a person would want to know of how the config was read.
	Notes []string
}

// ReadConfig reads a config that the record parsed; stated is what a GGUF says itself, nil for a config.json. A field that is missing or
// impossible is ArtifactCorrupt naming it; a variant that this graph does not compute is UnsupportedModel.
func ReadConfig(parsed artifact.Config, stated *artifact.Config) (Config, error) {
	f := parsed.Fields()
	r := reader{Fields: f, parsed: parsed, gguf: stated != nil, stated: stated}
	kind := r.kind()
	row, ok := rows[kind]
	if f.Err() == nil && !ok {
		return Config{}, contract.Errorf(contract.UnsupportedModel, parsed.Name()+": model_type", "%q is no row of the graph's table", kind)
	}
	c := Config{
		kind: kind, Row: row, HiddenSize: f.Size("hidden_size"), IntermediateSize: f.Size("intermediate_size"), VocabSize: f.Size("vocab_size"),
		Layers: f.Size("num_hidden_layers"), Heads: f.Size("num_attention_heads"), KVHeads: f.Size("num_key_value_heads"),
		HeadDim: f.Size("head_dim"), MaxPositions: f.Int("max_position_embeddings"), EOS: f.Ints("eos_token_ids"),
	}
	if row.Latent {
		r.latent(&c)
	}
	if _, isText := r.lookup("sliding_window_pattern").(string); c.NoRope == fullLayers && !r.gguf && r.Has("sliding_window_pattern") && !isText {
		r.Corrupt("sliding_window_pattern", "is not a text of one letter for each layer, L where it slides")
	}
	c.Windows = r.windows(r.layerTypes(&c), c.Layers)
	if f.Err() == nil && c.Heads%c.KVHeads != 0 {
		f.Corrupt("num_key_value_heads", "%d heads are no multiple of %d", c.Heads, c.KVHeads)
	}
	if f.Err() == nil {
		r.switches(&c)
		r.numbers(&c)
		r.positions(&c)
		r.refuse(&c)
	}
	return c, f.Err()
}

// Caches is what each layer keeps.
func (c Config) Caches() []kv.Spec {
	out := make([]kv.Spec, c.Layers)
	for i := range out {
		if out[i] = (kv.Spec{Heads: c.KVHeads, HeadDim: c.HeadDim, Window: c.Windows[i]}); c.Latent {
			out[i] = c.Latents.spec()
		}
	}
	return out
}

// layout is the vocabulary and the caches.
func (c Config) layout() engine.Layout {
	return engine.Layout{Vocab: c.VocabSize, Caches: c.Caches()}
}

// reader reads what rows name.
type reader struct {
	*artifact.Fields
	parsed artifact.Config
	gguf   bool
	stated *artifact.Config // before the record filled what is absent
}

// settle makes a switch always or never.
func (r reader) settle(s *Switch) {
	if *s != "" && *s != always {
		if r.Flag(string(*s)) {
			*s = always
		} else {
			*s = ""
		}
	}
}

// switches settles what the config's flags decide.
func (r reader) switches(c *Config) {
	for _, s := range []*Switch{&c.NormBias, &c.QKVBias, &c.OBias, &c.MLPBias, &c.Parallel.If} {
		r.settle(s)
	}
	if c.Parallel.If == always {
		c.Norms.MLP = ""
	}
	if c.QKNormIf != "" {
		if r.settle(&c.QKNormIf); c.QKNormIf == "" {
			c.QKNorm = noQKNorm
		}
	}
	c.Eps = nn.ReadEps(r.Fields, "rms_norm_eps") // of layer norms too: the dialects move it there
	switch c.Head {
	case byConfig:
		c.Tied = r.Flag("tie_word_embeddings")
	case own, ifStored:
		c.Tied = r.gguf && r.Flag("tie_word_embeddings") // there it says whether the file has a head
	case tied:
		c.Tied = true
	}
	r.activation(c.Act)
}

// activation refuses a config that wants another one than its architecture's. mlx-lm reads none of the spellings, and files have
// either kind of gelu for the other.
func (r reader) activation(act Act) {
	key, known := "hidden_act", []string{"", "silu", "swish"}
	if act != silu {
		key, known = "activation", []string{"", "gelu", "gelu_pytorch_tanh"} // the dialects move it there
	}
	if name := r.Text(key); !slices.Contains(known, name) {
		r.Unsupported("hidden_act", "the activation %q is not this architecture's", name)
	}
}

// Bounds of multipliers and caps, far beyond those that models are published with.
const minNumber, maxNumber = 1e-6, 1e6

// number is what the config has at key; without a key, or in a GGUF that lacks it, otherwise.
func (r reader) number(key Number, otherwise float64) float64 {
	if key == "" || r.gguf && !r.Has(string(key)) {
		return otherwise
	}
	v := r.Float(string(key))
	if !(v >= minNumber && v <= maxNumber) {
		r.Corrupt(string(key), "%g is not in [%g, %g]", v, minNumber, maxNumber)
		return 1
	}
	return v
}

// numbers reads multipliers and caps.
func (r reader) numbers(c *Config) {
	before := c.GGUF.Before
	if before == (Scales{}) {
		before = Scales{Embed: 1, Depth: math.Sqrt(float64(c.Layers)), Width: float64(c.HiddenSize)}
	}
	c.EmbedScale = r.number(c.EmbedBy, before.Embed)
	switch root := math.Sqrt(float64(c.HiddenSize)); c.Embed {
	case rootWidth:
		c.EmbedScale = root
	case rootWidthBF16:
		c.EmbedScale = bfloat16(root)
	case plain:
	}
	c.ResidualScale = r.number(c.Residual, 1)
	switch {
	case c.Depth != "" && r.gguf: // the converter has divided
		c.ResidualScale = r.number("residual_multiplier", before.Depth/math.Sqrt(float64(c.Layers)))
	case c.Depth != "":
		c.ResidualScale = r.number(c.Depth, 1) / math.Sqrt(float64(c.Layers))
	}
	c.LogitDivisor, c.LogitScale, c.HeadDivisor = r.number(c.DivideBy, 1), 1, 1
	switch {
	case c.TimesBy != "" && r.gguf: // one that does not say multiplies by nothing
		c.LogitScale = r.number("logits_scaling", 1)
	default:
		c.LogitScale = r.number(c.TimesBy, 1)
	}
	switch {
	case c.WidthBase != "" && r.gguf:
		c.HeadDivisor = r.number("logits_scaling", float64(c.HiddenSize)/before.Width)
	case c.WidthBase != "":
		c.HeadDivisor = float64(c.HiddenSize) / r.number(c.WidthBase, 1)
	}
	if c.QueryBeta != "" {
		if c.QueryGrowth = r.Float(string(c.QueryBeta)); c.QueryGrowth < 0 || c.QueryGrowth > 1e3 || math.IsNaN(c.QueryGrowth) {
			r.Corrupt(string(c.QueryBeta), "%g is no growth of queries", c.QueryGrowth)
		}
	}
	c.AttentionSoftcap, c.FinalSoftcap = r.number(c.AttnCap, 0), r.number(c.FinalCap, 0)
	c.AttentionScale = r.scale(c)
}

// scale is attention's.
func (r reader) scale(c *Config) float32 {
	switch {
	case c.Latent:
		return float32(math.Pow(float64(c.Latents.Plain+c.Latents.Rotated), -0.5))
	case c.ScaleBy != "":
		return float32(r.number(c.ScaleBy, math.Pow(float64(c.HeadDim), -0.5)))
	case c.ScaleOf == "":
		return float32(math.Pow(float64(c.HeadDim), -0.5))
	case r.gguf && c.Layers == c.GGUF.Widest: // the file does not say; llama.cpp knows the size by its layers
		return float32(math.Pow(float64(c.HiddenSize/c.Heads), -0.5))
	case r.gguf:
		return float32(math.Pow(float64(c.HeadDim), -0.5))
	}
	return float32(math.Pow(r.number(c.ScaleOf, 1), -0.5))
}

// bfloat16 rounds to eight bits of fraction, ties to even.
func bfloat16(v float64) float64 {
	bits := math.Float32bits(float32(v))
	return float64(math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff))
}

// windows reads layer types; a bare sliding_window without them changes nothing, as in mlx-lm.
func (r reader) windows(types []string, layers int) []int {
	if len(types) != layers {
		r.Corrupt("layer_types", "%d types for %d layers", len(types), layers)
		return nil
	}
	out := make([]int, layers)
	for i, t := range types {
		switch t {
		case "full_attention":
		case "sliding_attention":
			out[i] = r.Size("sliding_window")
		default:
			r.Unsupported(fmt.Sprintf("layer_types[%d]", i), "attention of type %q is not computed", t)
		}
	}
	return out
}
