package qwen3

import (
	"fmt"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/nn"
)

// Config is the canonical config of the family's record: its dialect has filled every default.
type Config struct {
	HiddenSize, IntermediateSize, VocabSize int
	Layers, Heads, KVHeads, HeadDim         int
	RMSNormEps                              float32
	Tied                                    bool
	Rope                                    nn.RopeConfig
	MaxPositions                            int
	EOS                                     []int32
}

// ReadConfig reads a config that the record parsed. A field that is missing or impossible is ArtifactCorrupt naming it; a
// variant that this graph does not compute is UnsupportedModel.
func ReadConfig(parsed artifact.Config) (Config, error) {
	f := parsed.Fields()
	c := Config{
		HiddenSize: f.Size("hidden_size"), IntermediateSize: f.Size("intermediate_size"), VocabSize: f.Size("vocab_size"),
		Layers: f.Size("num_hidden_layers"), Heads: f.Size("num_attention_heads"), KVHeads: f.Size("num_key_value_heads"),
		HeadDim: f.Size("head_dim"), RMSNormEps: float32(f.Float("rms_norm_eps")), Tied: f.Flag("tie_word_embeddings"),
		MaxPositions: f.Int("max_position_embeddings"), EOS: f.Ints("eos_token_ids"),
	}
	c.Rope = nn.ReadRope(f, c.HeadDim, c.MaxPositions)
	if f.Err() == nil && c.Heads%c.KVHeads != 0 {
		f.Corrupt("num_key_value_heads", "%d heads are no multiple of %d", c.Heads, c.KVHeads)
	}
	for i, kind := range f.Texts("layer_types") {
		if kind != "full_attention" { // mlx-lm would silently attend to everything
			f.Unsupported(fmt.Sprintf("layer_types[%d]", i), "attention of type %q is not computed", kind)
		}
	}
	return c, f.Err()
}

// Caches is what each layer keeps.
func (c Config) Caches() []kv.Spec {
	out := make([]kv.Spec, c.Layers)
	for i := range out {
		out[i] = kv.Spec{Heads: c.KVHeads, HeadDim: c.HeadDim}
	}
	return out
}
