package qwen35

import (
	"slices"
	"strconv"
	"strings"

	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
)

// llama.cpp's converter (conversion/qwen.py of llama-cpp-python 0.3.36) stores norms whole, convolutions as matrices, -exp(A_log) for A_log,
// and value heads by turns: the first of every key head, then the second of each. Weights stay as they are stored; what a token's projections
// are is put in order, and the result of the recurrence back.

// ggufLayerNames are llama.cpp's names of a layer's tensors (gguf-py, tensor_mapping.py).
var ggufLayerNames = strings.NewReplacer(
	"attn_norm.", "input_layernorm.", "post_attention_norm.", "post_attention_layernorm.",
	"attn_q_norm.", "self_attn.q_norm.", "attn_k_norm.", "self_attn.k_norm.", "attn_qkv.", "linear_attn.in_proj_qkv.",
	"attn_gate.", "linear_attn.in_proj_z.", "attn_q.", "self_attn.q_proj.", "attn_k.", "self_attn.k_proj.", "attn_v.", "self_attn.v_proj.",
	"attn_output.", "self_attn.o_proj.",
	"ssm_conv1d.", "linear_attn.conv1d.", "ssm_dt.bias", "linear_attn.dt_bias", "ssm_beta.", "linear_attn.in_proj_b.", "ssm_alpha.", "linear_attn.in_proj_a.",
	"ssm_norm.", "linear_attn.norm.", "ssm_out.", "linear_attn.out_proj.", "ssm_a", "linear_attn.A_log",
	"ffn_gate_inp_shexp.", "mlp.shared_expert_gate.", "ffn_gate_shexp.", "mlp.shared_expert.gate_proj.", "ffn_up_shexp.", "mlp.shared_expert.up_proj.",
	"ffn_down_shexp.", "mlp.shared_expert.down_proj.", "ffn_gate_inp.", "mlp.gate.", "ffn_gate_up_exps.", "mlp.switch_mlp.gate_up_proj.",
	"ffn_gate_exps.", "mlp.switch_mlp.gate_proj.", "ffn_up_exps.", "mlp.switch_mlp.up_proj.", "ffn_down_exps.", "mlp.switch_mlp.down_proj.",
	"ffn_gate.", "mlp.gate_proj.", "ffn_up.", "mlp.up_proj.", "ffn_down.", "mlp.down_proj.",
)

var ggufNames = strings.NewReplacer(
	"token_embd.", "language_model.model.embed_tokens.", "output_norm.", "language_model.model.norm.", "output.", "language_model.lm_head.",
)

// name is the graph's name of a stored tensor in either format; "" for what the graph has no use for.
func (c Config) name(stored string, gguf bool) string {
	if !gguf {
		return c.graphName(stored)
	}
	rest, ok := strings.CutPrefix(stored, "blk.")
	if !ok {
		return ggufNames.Replace(stored)
	}
	number, rest, _ := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(number); err == nil && n >= c.Layers && n < c.Layers+c.HeadLayers {
		return "" // of the head, which is not read
	}
	return "language_model.model.layers." + number + "." + ggufLayerNames.Replace(rest)
}

// tiled reports whether value heads lie by turns, which is another order where key heads have several.
func (b builder) tiled() bool {
	d := b.config.Delta
	return b.layout.gguf && d.KeyHeads != d.ValueHeads
}

// grouped puts value heads that lie by turns in the graph's order: channels [.., dim of each head] along the last axis.
func grouped(s *mlx.Scope, a *mlx.Array, d kv.DeltaShape, dim int) *mlx.Array {
	return swapped(s, a, d.ValueHeads/d.KeyHeads, d.KeyHeads, dim)
}

// byTurns is its inverse.
func byTurns(s *mlx.Scope, a *mlx.Array, d kv.DeltaShape, dim int) *mlx.Array {
	return swapped(s, a, d.KeyHeads, d.ValueHeads/d.KeyHeads, dim)
}

// swapped exchanges the first two of what the last axis is made of.
func swapped(s *mlx.Scope, a *mlx.Array, first, second, dim int) *mlx.Array {
	if s.Err() != nil {
		return a
	}
	shape := a.Shape()
	n := len(shape) - 1
	split := append(slices.Clone(shape[:n]), first, second, dim)
	return s.Reshape(s.Swapaxes(s.Reshape(a, split...), n, n+1), shape...)
}

// rearranged puts a token's projections [1, T, Width] in the graph's order.
func rearranged(s *mlx.Scope, x *mlx.Array, d kv.DeltaShape) *mlx.Array {
	at := 2 * d.KeyHeads * d.KeyDim
	parts := []*mlx.Array{s.SliceAxis(x, -1, 0, at)}
	for _, dim := range []int{d.ValueDim, d.ValueDim, 1, 1} { // values, z, b and a
		parts = append(parts, grouped(s, s.SliceAxis(x, -1, at, at+d.ValueHeads*dim), d, dim))
		at += d.ValueHeads * dim
	}
	return s.Concat(-1, parts...)
}

// fromGGUF makes of a layer's tensors, as llama.cpp stores them, what the recurrence takes.
func (b builder) fromGGUF(d *DeltaNet) {
	shape := b.config.Delta
	d.ALog = b.keep(b.s.Log(b.s.Neg(d.ALog)))
	if !b.tiled() {
		return
	}
	d.turned = true
	keys := 2 * shape.KeyHeads * shape.KeyDim
	d.ALog, d.DtBias = b.keep(grouped(b.s, d.ALog, shape, 1)), b.keep(grouped(b.s, d.DtBias, shape, 1))
	taps := grouped(b.s, b.s.SliceAxis(d.Conv, 1, keys, shape.Channels()), shape, shape.ValueDim)
	d.Conv = b.keep(b.s.Contiguous(b.s.Concat(1, b.s.SliceAxis(d.Conv, 1, 0, keys), taps), false))
}
