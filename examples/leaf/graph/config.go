// Package graph is the leaf decoder: norm, attention, norm, MLP with a squared ReLU.
package graph

import (
	"math"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
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
func ReadConfig(parsed artifact.Config) (c Config, err error) {
	for path, into := range map[string]*int{
		"hidden_size": &c.HiddenSize, "intermediate_size": &c.IntermediateSize, "vocab_size": &c.VocabSize,
		"num_hidden_layers": &c.Layers, "num_attention_heads": &c.Heads, "num_key_value_heads": &c.KVHeads, "head_dim": &c.HeadDim,
		"max_position_embeddings": &c.MaxPositions,
	} {
		v, _, err := parsed.Int(path)
		if err != nil {
			return c, err
		}
		if v < 0 || v > math.MaxInt32 || v == 0 && into != &c.MaxPositions {
			return c, contract.Errorf(contract.ArtifactCorrupt, parsed.Name()+": "+path, "%d is not a positive size", v)
		}
		*into = int(v)
	}
	eps, _, err := parsed.Float("rms_norm_eps")
	if err != nil {
		return c, err
	}
	base, _, err := parsed.Float("rope_theta")
	if err != nil {
		return c, err
	}
	c.RMSNormEps = float32(eps)
	c.Rope = nn.RopeConfig{Dims: c.HeadDim, Base: base, MaxPositions: c.MaxPositions}.Defaults()
	ids, _, err := parsed.Ints("eos_token_ids")
	for _, id := range ids {
		c.EOS = append(c.EOS, int32(id))
	}
	return c, err
}

// Caches is what each layer keeps.
func (c Config) Caches() []kv.Spec {
	out := make([]kv.Spec, c.Layers)
	for i := range out {
		out[i] = kv.Spec{Heads: c.KVHeads, HeadDim: c.HeadDim}
	}
	return out
}
