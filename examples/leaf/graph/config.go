// Package graph is the leaf decoder: norm, attention, norm, MLP with a squared ReLU.
package graph

import (
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/nn"
)

// Config is the canonical config of the record in plugin.yaml, which has filled every default.
type Config struct {
	HiddenSize, IntermediateSize, VocabSize int
	Layers, Heads, KVHeads, HeadDim         int
	MaxPositions                            int // 0 when the config states none
	RMSNormEps                              float32
	Rope                                    nn.RopeConfig
	EOS                                     []int32
}

// ReadConfig reads a parsed config; a field that is missing or impossible is ArtifactCorrupt naming it.
func ReadConfig(parsed artifact.Config) (Config, error) {
	f := parsed.Fields()
	c := Config{
		HiddenSize: f.Size("hidden_size"), IntermediateSize: f.Size("intermediate_size"), VocabSize: f.Size("vocab_size"),
		Layers: f.Size("num_hidden_layers"), Heads: f.Size("num_attention_heads"), KVHeads: f.Size("num_key_value_heads"), HeadDim: f.Size("head_dim"),
		MaxPositions: f.Int("max_position_embeddings"), RMSNormEps: nn.ReadEps(f, "rms_norm_eps"), EOS: f.Ints("eos_token_ids"),
	}
	c.Rope = nn.ReadRope(f, c.HeadDim, c.MaxPositions)
	if c.Heads%c.KVHeads != 0 {
		f.Corrupt("num_key_value_heads", "%d heads are no multiple of %d", c.Heads, c.KVHeads)
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
