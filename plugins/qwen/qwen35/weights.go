package qwen35

import (
	"fmt"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights"
)

// experts is how a checkpoint stores the matrices of experts.
type experts int

const (
	stackedExperts experts = iota // one tensor for each projection, as mlx-lm has them
	fusedExperts                  // gate and up in one, as Hugging Face has them
	singleExperts                 // expert by expert
)

// layout is how a checkpoint lies in its file.
type layout struct {
	// shifted: Hugging Face's layout. Norms are stored less 1, and convolutions are [channels, 1, taps]. The shape of the convolutions
	// says so: mlx-lm converts both at once.
	shifted bool
	// norms has the type in which the 1 is added to each: that of the file, so that it rounds as mlx-lm's does.
	norms   map[string]mlx.DType
	experts experts
	// gguf: as llama.cpp's converter writes it (gguf.go).
	gguf bool
}

// params lists every parameter of the graph under its name in MLX's layout.
func (c Config) params(l layout) []weights.Param {
	p := paramList{config: c, layout: l}
	p.matrix("language_model.model.embed_tokens", c.VocabSize, c.HiddenSize)
	for i := range c.Layers {
		layer := layerName(i)
		if c.Recurrent[i] {
			p.recurrent(layer)
		} else {
			p.attention(layer)
		}
		p.block(layer)
	}
	p.vector("language_model.model.norm.weight", c.HiddenSize)
	if !c.Tied {
		p.matrix("language_model.lm_head", c.VocabSize, c.HiddenSize)
	}
	return p.out
}

func layerName(i int) string { return fmt.Sprintf("language_model.model.layers.%d.", i) }

type paramList struct {
	config Config
	layout layout
	out    []weights.Param
}

func (p *paramList) matrix(path string, rows, cols int) {
	p.out = append(p.out, weights.Param{Name: path + ".weight", Shape: []int{rows, cols}})
}

func (p *paramList) vector(name string, shape ...int) {
	p.out = append(p.out, weights.Param{Name: name, Shape: shape})
}

func (p *paramList) recurrent(layer string) {
	c, d, mix := p.config, p.config.Delta, layer+"linear_attn."
	p.matrix(mix+"in_proj_qkv", d.Channels(), c.HiddenSize)
	p.matrix(mix+"in_proj_z", d.Values(), c.HiddenSize)
	p.matrix(mix+"in_proj_b", d.ValueHeads, c.HiddenSize)
	p.matrix(mix+"in_proj_a", d.ValueHeads, c.HiddenSize)
	taps := []int{d.Channels(), d.Taps, 1}
	if p.layout.shifted {
		taps = []int{d.Channels(), 1, d.Taps}
	}
	if p.layout.gguf {
		taps = []int{d.Channels(), d.Taps}
	}
	p.out = append(p.out, weights.Param{Name: mix + "conv1d.weight", Shape: taps, Plain: true})
	for _, name := range []string{"A_log", "dt_bias"} {
		p.out = append(p.out, weights.Param{Name: mix + name, Shape: []int{d.ValueHeads}, KeepFloat32: true})
	}
	p.vector(mix+"norm.weight", d.ValueDim)
	p.matrix(mix+"out_proj", c.HiddenSize, d.Values())
}

func (p *paramList) attention(layer string) {
	c, at := p.config, layer+"self_attn."
	linear := func(name string, rows, cols int) {
		p.matrix(at+name, rows, cols)
		if c.AttentionBias {
			p.vector(at+name+".bias", rows)
		}
	}
	p.half(at, "q_proj", 0)
	p.half(at, "q_gate", c.HeadDim)
	linear("k_proj", c.KVHeads*c.HeadDim, c.HiddenSize)
	linear("v_proj", c.KVHeads*c.HeadDim, c.HiddenSize)
	linear("o_proj", c.HiddenSize, c.Heads*c.HeadDim)
	p.vector(at+"q_norm.weight", c.HeadDim)
	p.vector(at+"k_norm.weight", c.HeadDim)
}

// half is every head's query or gate: rows from first on of its two times HeadDim in q_proj.
func (p *paramList) half(at, name string, first int) {
	c := p.config
	part := func(of string) *weights.Part {
		return &weights.Part{Of: at + "q_proj" + of, Rows: 2 * c.Heads * c.HeadDim, Groups: c.Heads, First: first}
	}
	p.out = append(p.out, weights.Param{Name: at + name + ".weight", Shape: []int{c.Heads * c.HeadDim, c.HiddenSize}, Part: part(".weight")})
	if c.AttentionBias {
		p.out = append(p.out, weights.Param{Name: at + name + ".bias", Shape: []int{c.Heads * c.HeadDim}, Part: part(".bias")})
	}
}

func (p *paramList) block(layer string) {
	c := p.config
	p.vector(layer+"input_layernorm.weight", c.HiddenSize)
	p.vector(layer+"post_attention_layernorm.weight", c.HiddenSize)
	if c.MoE == nil {
		p.mlp(layer+"mlp.", c.IntermediateSize)
		return
	}
	p.matrix(layer+"mlp.gate", c.MoE.Experts, c.HiddenSize)
	p.expert(layer, "gate_proj", c.MoE.IntermediateSize, c.HiddenSize)
	p.expert(layer, "up_proj", c.MoE.IntermediateSize, c.HiddenSize)
	p.expert(layer, "down_proj", c.HiddenSize, c.MoE.IntermediateSize)
	p.mlp(layer+"mlp.shared_expert.", c.MoE.SharedSize)
	p.matrix(layer+"mlp.shared_expert_gate", 1, c.HiddenSize)
}

func (p *paramList) mlp(path string, width int) {
	p.matrix(path+"gate_proj", width, p.config.HiddenSize)
	p.matrix(path+"up_proj", width, p.config.HiddenSize)
	p.matrix(path+"down_proj", p.config.HiddenSize, width)
}

// expert is one projection of every expert.
func (p *paramList) expert(layer, name string, rows, cols int) {
	n := p.config.MoE.Experts
	out := weights.Param{Name: layer + "mlp.switch_mlp." + name + ".weight", Shape: []int{n, rows, cols}, Experts: true}
	switch fused := layer + "mlp.switch_mlp.gate_up_proj.weight"; {
	case p.layout.experts == singleExperts:
		for e := range n {
			out.Joined = append(out.Joined, fmt.Sprintf("%smlp.experts.%d.%s.weight", layer, e, name))
		}
	case p.layout.experts == fusedExperts && name == "gate_proj":
		out.Part = &weights.Part{Of: fused, Rows: 2 * n * rows, Groups: n}
	case p.layout.experts == fusedExperts && name == "up_proj":
		out.Part = &weights.Part{Of: fused, Rows: 2 * n * rows, Groups: n, First: rows}
	}
	p.out = append(p.out, out)
}

// Match finds the graph's parameters in an artifact.
func Match(a *artifact.Artifact, c Config) (*weights.Set, error) {
	set, _, err := match(a, c)
	return set, err
}

func match(a *artifact.Artifact, c Config) (*weights.Set, layout, error) {
	quantization, err := weights.ReadQuantization(a.Config())
	if err != nil {
		return nil, layout{}, err
	}
	l := c.layoutOf(a)
	set, err := weights.Match(a, c.params(l), weights.Rules{
		Name: func(stored string) string { return c.name(stored, l.gguf) }, Quantization: quantization, Squeezed: l.gguf,
	})
	return set, l, err
}

// layoutOf looks for a convolution that was not converted: one is enough, as in mlx-lm.
func (c Config) layoutOf(a *artifact.Artifact) layout {
	l := layout{norms: map[string]mlx.DType{}, gguf: a.Format == artifact.GGUF}
	for _, t := range a.Tensors() {
		name := c.name(t.Name, l.gguf)
		if strings.Contains(name, "conv1d.weight") && len(t.Shape) == 3 && t.Shape[2] != 1 {
			l.shifted = true
		}
		if len(t.Shape) == 1 && isShifted(name) {
			l.norms[name] = storedAs(t.DType)
		}
		l.experts = max(l.experts, expertsOf(name))
	}
	return l
}

// expertsOf is what the graph's name of a tensor says of how experts are stored.
func expertsOf(name string) experts {
	switch {
	case strings.HasSuffix(name, ".mlp.switch_mlp.gate_up_proj.weight"):
		return fusedExperts
	case strings.Contains(name, ".mlp.experts."):
		return singleExperts
	}
	return stackedExperts
}

// expertName is the graph's name of what Hugging Face calls experts.NAME.
func expertName(name string) string {
	for _, projection := range []string{"gate_up_proj", "down_proj"} {
		if layer, ok := strings.CutSuffix(name, ".mlp.experts."+projection); ok {
			return layer + ".mlp.switch_mlp." + projection + ".weight"
		}
	}
	return name
}

// isShifted tells the norms that Hugging Face stores less 1: all but the one behind the recurrence.
func isShifted(name string) bool {
	for _, suffix := range []string{".input_layernorm.weight", ".post_attention_layernorm.weight", "model.norm.weight", ".q_norm.weight", ".k_norm.weight"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

func storedAs(t artifact.DType) mlx.DType {
	switch t {
	case artifact.BF16:
		return mlx.BFloat16
	case artifact.F16:
		return mlx.Float16
	}
	return mlx.Float32
}

// graphName is the name in MLX's layout, "" for what the graph has no use for: vision towers, MTP heads, the copy of a tied head.
func (c Config) graphName(stored string) string {
	if strings.HasPrefix(stored, "vision_tower") || strings.HasPrefix(stored, "model.visual") || strings.Contains(stored, "mtp.") {
		return ""
	}
	name := stored
	if rest, ok := strings.CutPrefix(stored, "model.language_model"); ok {
		name = "language_model.model" + rest
	} else if !strings.HasPrefix(stored, "language_model.") {
		name = "language_model." + stored
	}
	if c.Tied && strings.HasPrefix(name, "language_model.lm_head.") {
		return ""
	}
	return expertName(name)
}
