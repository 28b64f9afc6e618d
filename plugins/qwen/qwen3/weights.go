package qwen3

import (
	"fmt"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/weights"
)

// Params lists every parameter of the graph under its Hugging Face name.
func (c Config) Params() []weights.Param {
	var out []weights.Param
	add := func(name string, shape ...int) {
		out = append(out, weights.Param{Name: name + ".weight", Shape: shape})
	}
	add("model.embed_tokens", c.VocabSize, c.HiddenSize)
	for i := range c.Layers {
		layer := layerName(i)
		add(layer+"input_layernorm", c.HiddenSize)
		add(layer+"self_attn.q_proj", c.Heads*c.HeadDim, c.HiddenSize)
		add(layer+"self_attn.k_proj", c.KVHeads*c.HeadDim, c.HiddenSize)
		add(layer+"self_attn.v_proj", c.KVHeads*c.HeadDim, c.HiddenSize)
		add(layer+"self_attn.o_proj", c.HiddenSize, c.Heads*c.HeadDim)
		add(layer+"self_attn.q_norm", c.HeadDim)
		add(layer+"self_attn.k_norm", c.HeadDim)
		add(layer+"post_attention_layernorm", c.HiddenSize)
		if c.sparse(i) {
			add(layer+"mlp.gate", c.MoE.Experts, c.HiddenSize)
			out = append(out, c.experts(layer, "gate_proj", c.MoE.IntermediateSize, c.HiddenSize),
				c.experts(layer, "up_proj", c.MoE.IntermediateSize, c.HiddenSize),
				c.experts(layer, "down_proj", c.HiddenSize, c.MoE.IntermediateSize))
			continue
		}
		add(layer+"mlp.gate_proj", c.IntermediateSize, c.HiddenSize)
		add(layer+"mlp.up_proj", c.IntermediateSize, c.HiddenSize)
		add(layer+"mlp.down_proj", c.HiddenSize, c.IntermediateSize)
	}
	add("model.norm", c.HiddenSize)
	if !c.Tied {
		add("lm_head", c.VocabSize, c.HiddenSize)
	}
	return out
}

// experts is one projection of every expert: stored as one, as mlx-lm does, or expert by expert, as Hugging Face does.
func (c Config) experts(layer, name string, rows, cols int) weights.Param {
	p := weights.Param{Name: layer + "mlp.switch_mlp." + name + ".weight", Shape: []int{c.MoE.Experts, rows, cols}, Experts: true}
	for e := range c.MoE.Experts {
		p.Joined = append(p.Joined, fmt.Sprintf("%smlp.experts.%d.%s.weight", layer, e, name))
	}
	return p
}

func layerName(i int) string { return fmt.Sprintf("model.layers.%d.", i) }

// Match finds the graph's parameters in an artifact.
func Match(a *artifact.Artifact, c Config) (*weights.Set, error) {
	quantization, err := weights.ReadQuantization(a.Config())
	if err != nil {
		return nil, err
	}
	rules := weights.Rules{Name: c.safetensorsName, Quantization: quantization}
	if a.Format == artifact.GGUF {
		rules.Name = ggufName
	}
	return weights.Match(a, c.Params(), rules)
}

// safetensorsName drops what mlx-lm's sanitize drops: the copy of a tied head. Embedding models are published as a decoder alone,
// whose names lack the first part.
func (c Config) safetensorsName(stored string) string {
	first, _, _ := strings.Cut(stored, ".")
	switch {
	case first == "lm_head" && c.Tied:
		return ""
	case first == "embed_tokens", first == "layers", first == "norm":
		return "model." + stored
	}
	return stored
}

// ggufNames are llama.cpp's tensor names (gguf-py, tensor_mapping.py). Its qwen3 rotates half-split pairs: rows lie as they are.
var ggufNames = strings.NewReplacer(
	"token_embd.", "model.embed_tokens.", "output_norm.", "model.norm.", "output.", "lm_head.", "blk.", "model.layers.",
	"attn_norm.", "input_layernorm.", "ffn_norm.", "post_attention_layernorm.",
	"attn_q_norm.", "self_attn.q_norm.", "attn_k_norm.", "self_attn.k_norm.",
	"attn_q.", "self_attn.q_proj.", "attn_k.", "self_attn.k_proj.", "attn_v.", "self_attn.v_proj.",
	"attn_output.", "self_attn.o_proj.",
	"ffn_gate_inp.", "mlp.gate.", "ffn_gate_exps.", "mlp.switch_mlp.gate_proj.", "ffn_up_exps.", "mlp.switch_mlp.up_proj.",
	"ffn_down_exps.", "mlp.switch_mlp.down_proj.",
	"ffn_gate.", "mlp.gate_proj.", "ffn_up.", "mlp.up_proj.", "ffn_down.", "mlp.down_proj.",
)

func ggufName(stored string) string { return ggufNames.Replace(stored) }
