package llama

import (
	"fmt"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/weights"
)

// Params lists every parameter of the graph under its Hugging Face name.
func (c Config) Params() []weights.Param {
	var out []weights.Param
	add := func(name string, shape ...int) { out = append(out, weights.Param{Name: name, Shape: shape}) }
	linear := func(path string, rows, cols int, bias bool) {
		add(path+".weight", rows, cols)
		if bias {
			add(path+".bias", rows)
		}
	}
	add("model.embed_tokens.weight", c.VocabSize, c.HiddenSize)
	for i := range c.Layers {
		layer := layerName(i)
		add(layer+"input_layernorm.weight", c.HiddenSize)
		linear(layer+"self_attn.q_proj", c.Heads*c.HeadDim, c.HiddenSize, c.AttentionBias)
		linear(layer+"self_attn.k_proj", c.KVHeads*c.HeadDim, c.HiddenSize, c.AttentionBias)
		linear(layer+"self_attn.v_proj", c.KVHeads*c.HeadDim, c.HiddenSize, c.AttentionBias)
		linear(layer+"self_attn.o_proj", c.HiddenSize, c.Heads*c.HeadDim, c.AttentionBias)
		add(layer+"post_attention_layernorm.weight", c.HiddenSize)
		linear(layer+"mlp.gate_proj", c.IntermediateSize, c.HiddenSize, c.MLPBias)
		linear(layer+"mlp.up_proj", c.IntermediateSize, c.HiddenSize, c.MLPBias)
		linear(layer+"mlp.down_proj", c.HiddenSize, c.IntermediateSize, c.MLPBias)
	}
	add("model.norm.weight", c.HiddenSize)
	if !c.Tied {
		linear("lm_head", c.VocabSize, c.HiddenSize, false)
	}
	return out
}

func layerName(i int) string { return fmt.Sprintf("model.layers.%d.", i) }

// Match finds the graph's parameters in an artifact.
func Match(a *artifact.Artifact, c Config) (*weights.Set, error) {
	quantization, err := weights.ReadQuantization(a.Config())
	if err != nil {
		return nil, err
	}
	params, rules := c.Params(), weights.Rules{Name: c.safetensorsName, Quantization: quantization}
	if a.Format == artifact.GGUF {
		rules.Name = ggufName
		params = c.ggufParams(a, params)
	}
	return weights.Match(a, params, rules)
}

// safetensorsName drops what mlx-lm's sanitize drops: precomputed rotary frequencies, and the copy of a tied head.
func (c Config) safetensorsName(stored string) string {
	if strings.HasSuffix(stored, "self_attn.rotary_emb.inv_freq") || (c.Tied && strings.HasPrefix(stored, "lm_head.")) {
		return ""
	}
	return stored
}

// ggufFreqs is a GGUF's divisor of each rotary frequency, where llama.cpp's converter put a llama3 scaling.
const ggufFreqs = "rope_freqs.weight"

// ggufNames are llama.cpp's tensor names (gguf-py, tensor_mapping.py).
var ggufNames = strings.NewReplacer(
	"token_embd.", "model.embed_tokens.", "output_norm.", "model.norm.", "output.", "lm_head.", "blk.", "model.layers.",
	"attn_norm.", "input_layernorm.", "ffn_norm.", "post_attention_layernorm.",
	"attn_q.", "self_attn.q_proj.", "attn_k.", "self_attn.k_proj.", "attn_v.", "self_attn.v_proj.",
	"attn_output.", "self_attn.o_proj.",
	"ffn_gate.", "mlp.gate_proj.", "ffn_up.", "mlp.up_proj.", "ffn_down.", "mlp.down_proj.",
)

func ggufName(stored string) string { return ggufNames.Replace(stored) }

// ggufParams adjusts the parameters to what a GGUF holds: rows of q and k in interleaved rope order, which llama.cpp's
// converter permutes them to, and perhaps frequency factors.
func (c Config) ggufParams(a *artifact.Artifact, params []weights.Param) []weights.Param {
	for i := range params {
		switch {
		case c.Rope.Traditional: // a graph that rotates interleaved pairs wants the rows as they lie
		case strings.Contains(params[i].Name, "self_attn.q_proj."):
			params[i].InterleavedHeads = c.Heads
		case strings.Contains(params[i].Name, "self_attn.k_proj."):
			params[i].InterleavedHeads = c.KVHeads
		}
	}
	if _, ok := a.Tensor(ggufFreqs); ok {
		params = append(params, weights.Param{Name: ggufFreqs, Shape: []int{c.Rope.Dims / 2}})
	}
	return params
}
