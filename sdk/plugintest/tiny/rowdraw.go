package tiny

import (
	"fmt"
	"math"
)

// rowDraw draws the tensors of one checkpoint.
type rowDraw struct {
	config map[string]any
	has    rowTensors
	out    []Tensor
}

func (r *rowDraw) int(key string) int { n, _ := r.config[key].(int); return n }

func (r *rowDraw) headDim() int {
	if d := r.int("head_dim"); d != 0 {
		return d
	}
	return r.int("hidden_size") / r.int("num_attention_heads")
}

func (r *rowDraw) add(name string, mean, deviation float64, shape ...int) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	if name = r.has.prefix + name; r.has.rename != nil {
		name = r.has.rename.Replace(name)
	}
	r.out = append(r.out, Tensor{name, shape, gaussian(20261, name, n, mean, deviation)})
}

// linear has the deviation 1/sqrt(in), so that activations keep their size.
func (r *rowDraw) linear(path string, rows, cols int, bias bool) {
	r.add(path+".weight", 0, 1/math.Sqrt(float64(cols)), rows, cols)
	if bias {
		r.add(path+".bias", 0, 0.1, rows)
	}
}

// norm lies around its mean, so that a forgotten one shows.
func (r *rowDraw) norm(path string, width int) {
	r.add(path+".weight", r.has.mean, 0.1, width)
	if r.has.normBias {
		r.add(path+".bias", 0, 0.1, width)
	}
}

func (r *rowDraw) draw() {
	hidden, vocab := r.int("hidden_size"), r.int("vocab_size")
	// Small against what the layers add, or a tied model would say its last token for ever.
	r.add("model.embed_tokens.weight", 0, 0.1/r.embedScale(), vocab, hidden)
	for i := range r.int("num_hidden_layers") {
		r.layer(fmt.Sprintf("model.layers.%d.", i))
	}
	r.norm("model.norm", hidden)
	if r.has.head {
		r.linear("lm_head", vocab, hidden, false)
	}
	if r.has.tower {
		r.has.prefix = ""
		r.linear("vision_tower.vision_model.post_layernorm", 8, 8, true)
		r.linear("multi_modal_projector.mm_input_projection", 8, 8, false)
	}
}

// embedScale is what the graph multiplies embeddings with, roughly.
func (r *rowDraw) embedScale() float64 {
	if r.has.mean == 0 {
		return math.Sqrt(float64(r.int("hidden_size")))
	}
	for _, key := range []string{"embedding_multiplier", "scale_emb"} {
		if v, ok := r.config[key].(float64); ok {
			return v
		}
	}
	return 1
}

func (r *rowDraw) layer(layer string) {
	hidden, dim := r.int("hidden_size"), r.headDim()
	q, kv := r.int("num_attention_heads")*dim, r.int("num_key_value_heads")*dim
	for _, name := range r.has.norms {
		r.norm(layer+name, hidden)
	}
	attn := layer + "self_attn."
	if r.has.latent {
		r.latents(attn)
		r.mlp(layer)
		return
	}
	if r.has.fused {
		r.linear(attn+"qkv_proj", q+2*kv, hidden, r.has.qkv)
	} else {
		r.linear(attn+"q_proj", q, hidden, r.has.qkv)
		r.linear(attn+"k_proj", kv, hidden, r.has.qkv)
		r.linear(attn+"v_proj", kv, hidden, r.has.qkv)
	}
	r.linear(attn+"o_proj", hidden, q, r.has.o)
	switch {
	case r.has.headNorms:
		r.norm(attn+"q_norm", dim)
		r.norm(attn+"k_norm", dim)
	case r.has.fullNorms:
		r.norm(attn+"q_norm", q)
		r.norm(attn+"k_norm", kv)
	case r.has.headRows:
		r.add(attn+"q_norm.weight", 1, 0.1, q/dim, dim)
		r.add(attn+"k_norm.weight", 1, 0.1, kv/dim, dim)
	case r.has.eachHead:
		for h := range q / dim {
			r.add(fmt.Sprintf("%sq_layernorm.norms.%d.weight", attn, h), 1, 0.1, dim)
		}
		for h := range kv / dim {
			r.add(fmt.Sprintf("%sk_layernorm.norms.%d.weight", attn, h), 1, 0.1, dim)
		}
	}
	r.mlp(layer)
}

func (r *rowDraw) mlp(layer string) {
	hidden, inter := r.int("hidden_size"), r.int("intermediate_size")
	switch {
	case r.has.ungated[0] != "":
		r.linear(layer+r.has.ungated[0], inter, hidden, r.has.mlp)
		r.linear(layer+r.has.ungated[1], hidden, inter, r.has.mlp)
		return
	case r.has.fused && !r.has.unfusedGate || r.has.fusedGate:
		r.linear(layer+"mlp.gate_up_proj", 2*inter, hidden, r.has.mlp)
	default:
		r.linear(layer+"mlp.gate_proj", inter, hidden, r.has.mlp)
		r.linear(layer+"mlp.up_proj", inter, hidden, r.has.mlp)
	}
	r.linear(layer+"mlp.down_proj", hidden, inter, r.has.mlp)
}
