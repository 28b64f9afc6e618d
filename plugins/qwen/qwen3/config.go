package qwen3

import (
	"fmt"
	"maps"
	"slices"

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

	// MoE is nil for a dense model.
	MoE *MoE
}

// MoE is what a model of experts has beside a dense one.
type MoE struct {
	Experts, TopK, IntermediateSize int
	Normalize                       bool // norm_topk_prob
	// Sparse has one entry a layer: whether its MLP is a mixture.
	Sparse []bool
}

// ReadConfig reads a config that the record parsed. A field that is missing or impossible is ArtifactCorrupt naming it; a
// variant that this graph does not compute is UnsupportedModel.
func ReadConfig(parsed artifact.Config) (Config, error) {
	f := parsed.Fields()
	c := Config{
		HiddenSize: f.Size("hidden_size"), IntermediateSize: f.Size("intermediate_size"), VocabSize: f.Size("vocab_size"),
		Layers: f.Size("num_hidden_layers"), Heads: f.Size("num_attention_heads"), KVHeads: f.Size("num_key_value_heads"),
		HeadDim: f.Size("head_dim"), RMSNormEps: nn.ReadEps(f, "rms_norm_eps"), Tied: f.Flag("tie_word_embeddings"),
		MaxPositions: f.Int("max_position_embeddings"), EOS: f.Ints("eos_token_ids"),
	}
	c.Rope = nn.ReadRope(f, c.HeadDim, c.MaxPositions)
	if f.Err() == nil && c.Heads%c.KVHeads != 0 {
		f.Corrupt("num_key_value_heads", "%d heads are no multiple of %d", c.Heads, c.KVHeads)
	}
	if f.Has("rotary_dim") && f.Int("rotary_dim") != c.HeadDim { // as a GGUF may say; llama.cpp stops there
		f.Unsupported("rotary_dim", "%d of %d channels would rotate: all do here", f.Int("rotary_dim"), c.HeadDim)
	}
	for i, kind := range f.Texts("layer_types") {
		if kind != "full_attention" { // mlx-lm would silently attend to everything
			f.Unsupported(fmt.Sprintf("layer_types[%d]", i), "attention of type %q is not computed", kind)
		}
	}
	return c, f.Err()
}

// ReadMoEConfig reads the config of a mixture. Its rope_scaling is not read: mlx-lm ignores it for this type.
func ReadMoEConfig(parsed artifact.Config) (Config, error) {
	tree := maps.Clone(parsed.Map())
	delete(tree, "rope_scaling")
	parsed = artifact.NewConfig(parsed.Name(), tree)
	c, err := ReadConfig(parsed)
	if err != nil {
		return c, err
	}
	f := parsed.Fields()
	c.MoE = &MoE{
		Experts: f.Size("num_experts"), TopK: f.Size("num_experts_per_tok"), IntermediateSize: f.Size("moe_intermediate_size"),
		Normalize: f.Flag("norm_topk_prob"), Sparse: make([]bool, c.Layers),
	}
	step, dense := f.Size("decoder_sparse_step"), f.Ints("mlp_only_layers")
	for i := range c.MoE.Sparse {
		c.MoE.Sparse[i] = (i+1)%step == 0 && !slices.Contains(dense, int32(i))
	}
	if f.Err() == nil && c.MoE.TopK > c.MoE.Experts {
		f.Corrupt("num_experts_per_tok", "%d of %d experts", c.MoE.TopK, c.MoE.Experts)
	}
	return c, f.Err()
}

func (c Config) sparse(layer int) bool { return c.MoE != nil && c.MoE.Sparse[layer] }

// Caches is what each layer keeps.
func (c Config) Caches() []kv.Spec {
	out := make([]kv.Spec, c.Layers)
	for i := range out {
		out[i] = kv.Spec{Heads: c.KVHeads, HeadDim: c.HeadDim}
	}
	return out
}
