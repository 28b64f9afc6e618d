package qwen35

import (
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/nn"
)

// Config is the canonical config of the family's record: its dialect has filled every default.
type Config struct {
	HiddenSize, IntermediateSize, VocabSize int
	Layers, Heads, KVHeads, HeadDim         int
	RMSNormEps                              float32
	AttentionBias, Tied                     bool
	Rope                                    nn.RopeConfig
	Delta                                   kv.DeltaShape
	// Recurrent has one entry a layer: whether it is a gated delta network.
	Recurrent    []bool
	MaxPositions int
	EOS          []int32
	// HeadLayers is how many layers of a head a GGUF has behind the model's.
	HeadLayers int

	// turned: the file has value heads in another order (gguf.go).
	turned bool
	// MoE is nil for a dense model; in another one every layer is a mixture.
	MoE *Mixture
}

// Mixture is what a model of experts has beside a dense one, whose IntermediateSize it has no use for.
type Mixture struct {
	Experts, TopK                int
	IntermediateSize, SharedSize int  // of a routed expert, and of the shared one
	Normalize                    bool // norm_topk_prob
}

// ReadConfig reads a config that the record parsed. A field that is missing or impossible is ArtifactCorrupt naming it; a
// variant that this graph does not compute is UnsupportedModel.
func ReadConfig(parsed artifact.Config) (Config, error) {
	f := parsed.Fields()
	c := Config{
		HiddenSize: f.Size("hidden_size"), IntermediateSize: f.Size("intermediate_size"), VocabSize: f.Size("vocab_size"),
		Layers: f.Size("num_hidden_layers"), Heads: f.Size("num_attention_heads"), KVHeads: f.Size("num_key_value_heads"),
		HeadDim: f.Size("head_dim"), RMSNormEps: nn.ReadEps(f, "rms_norm_eps"),
		AttentionBias: f.Flag("attention_bias"), Tied: f.Flag("tie_word_embeddings"),
		Delta: kv.DeltaShape{
			KeyHeads: f.Size("linear_num_key_heads"), ValueHeads: f.Size("linear_num_value_heads"),
			KeyDim: f.Size("linear_key_head_dim"), ValueDim: f.Size("linear_value_head_dim"), Taps: f.Size("linear_conv_kernel_dim"),
		},
		MaxPositions: f.Int("max_position_embeddings"), EOS: f.Ints("eos_token_ids"), HeadLayers: f.Int("mtp_num_hidden_layers"),
	}
	factor := f.Float("partial_rotary_factor")
	if factor <= 0 || factor > 1 {
		f.Corrupt("partial_rotary_factor", "%g is not in (0, 1]", factor)
	}
	rotates := int(float64(c.HeadDim) * factor)
	if f.Has("rotary_dim") { // as a GGUF says it
		rotates = f.Size("rotary_dim")
	}
	c.Rope = nn.ReadRope(f, rotates, c.MaxPositions)
	for _, kind := range f.Texts("layer_types") {
		c.Recurrent = append(c.Recurrent, kind == "linear_attention")
	}
	switch {
	case len(c.Recurrent) != c.Layers:
		f.Corrupt("layer_types", "%d types for %d layers", len(c.Recurrent), c.Layers)
	case c.Heads%c.KVHeads != 0:
		f.Corrupt("num_key_value_heads", "%d heads are no multiple of %d", c.Heads, c.KVHeads)
	case c.Delta.ValueHeads%c.Delta.KeyHeads != 0:
		f.Corrupt("linear_num_key_heads", "%d value heads are no multiple of %d", c.Delta.ValueHeads, c.Delta.KeyHeads)
	case f.Has("linear_inner_size") && f.Int("linear_inner_size") != c.Delta.Values():
		f.Corrupt("linear_inner_size", "%d are no %d value heads of %d", f.Int("linear_inner_size"), c.Delta.ValueHeads, c.Delta.ValueDim)
	case rotates > c.HeadDim:
		f.Corrupt("rotary_dim", "%d of %d channels rotate", rotates, c.HeadDim)
	case c.Delta.Taps < 2:
		f.Corrupt("linear_conv_kernel_dim", "the convolution must look back")
	}
	return c, f.Err()
}

// ReadMoEConfig reads the config of a mixture.
func ReadMoEConfig(parsed artifact.Config) (Config, error) {
	c, err := ReadConfig(parsed)
	if err != nil {
		return c, err
	}
	f := parsed.Fields()
	c.MoE = &Mixture{
		Experts: f.Size("num_experts"), TopK: f.Size("num_experts_per_tok"), Normalize: f.Flag("norm_topk_prob"),
		IntermediateSize: f.Size("moe_intermediate_size"), SharedSize: f.Size("shared_expert_intermediate_size"),
	}
	if f.Err() == nil && c.MoE.TopK > c.MoE.Experts {
		f.Corrupt("num_experts_per_tok", "%d of %d experts", c.MoE.TopK, c.MoE.Experts)
	}
	return c, f.Err()
}

// Caches is what each layer keeps.
func (c Config) Caches() []kv.Spec {
	out := make([]kv.Spec, c.Layers)
	for i := range out {
		out[i] = kv.Spec{Heads: c.KVHeads, HeadDim: c.HeadDim}
		if c.Recurrent[i] {
			out[i] = c.Delta.Spec()
		}
	}
	return out
}
