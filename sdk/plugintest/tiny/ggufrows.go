package tiny

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// ggufRecipe is a checkpoint that llama.cpp runs too: what its converter (conversion/*.py of llama-cpp-python 0.3.36) makes of it.
type ggufRecipe struct {
	rowRecipe
	arch    string
	norms   *strings.Replacer
	permute bool // rows of q and k go to the interleaved rope order
	plusOne bool // norms are stored with the one that the architecture adds
	keys    []ggufField
	factors map[string][]float32 // of rotary frequencies, by tensor
}

// DenseGGUF lists checkpoints of the dense graph's rows that llama.cpp has too, each twice: NAME as Hugging Face has it, and NAME.gguf as
// llama.cpp's converter writes it, in float32. With names only those are drawn.
func DenseGGUF(names ...string) []Checkpoint {
	var out []Checkpoint
	for _, r := range ggufRecipes() {
		if len(names) == 0 || slices.Contains(names, r.name) {
			c := r.checkpoint()
			out = append(out, c, Checkpoint{Name: c.Name + ".gguf", Config: c.Config, Tensors: c.Tensors, store: r.write})
		}
	}
	return out
}

// DenseGGUFNames lists the names of DenseGGUF's pairs.
func DenseGGUFNames() []string {
	var out []string
	for _, r := range ggufRecipes() {
		out = append(out, r.name)
	}
	return out
}

// Norms stand in a GGUF by their place in the layer.
var (
	ggufPre  = strings.NewReplacer("input_layernorm.", "attn_norm.", "post_attention_layernorm.", "ffn_norm.")
	ggufPost = strings.NewReplacer("post_attention_layernorm.", "post_attention_norm.", "post_feedforward_layernorm.", "post_ffw_norm.")
	ggufFour = strings.NewReplacer("input_layernorm.", "attn_norm.", "post_attention_layernorm.", "post_attention_norm.",
		"pre_feedforward_layernorm.", "ffn_norm.", "post_feedforward_layernorm.", "post_ffw_norm.")
	ggufGLM = strings.NewReplacer("input_layernorm.", "attn_norm.", "post_self_attn_layernorm.", "post_attention_norm.",
		"post_attention_layernorm.", "ffn_norm.", "post_mlp_layernorm.", "post_ffw_norm.")
	ggufIntern = strings.NewReplacer("attention_norm.", "attn_norm.", "tok_embeddings.", "embed_tokens.", "attention.wo.", "self_attn.o_proj.",
		"feed_forward.w1.", "mlp.gate_proj.", "feed_forward.w2.", "mlp.down_proj.", "feed_forward.w3.", "mlp.up_proj.", "attention.wqkv.", "self_attn.qkv_proj.")
)

// ggufRowNames maps what norms left of a name.
var ggufRowNames = strings.NewReplacer(
	"model.embed_tokens.", "token_embd.", "model.layers.", "blk.", "model.norm.", "output_norm.", "lm_head.", "output.",
	"self_attn.q_norm.", "attn_q_norm.", "self_attn.k_norm.", "attn_k_norm.", "self_attn.q_layernorm.", "attn_q_norm.", "self_attn.k_layernorm.", "attn_k_norm.",
	"self_attn.qkv_proj.", "attn_qkv.", "self_attn.q_proj.", "attn_q.", "self_attn.k_proj.", "attn_k.", "self_attn.v_proj.", "attn_v.", "self_attn.o_proj.", "attn_output.",
	"self_attn.q_a_proj.", "attn_q_a.", "self_attn.q_a_layernorm.", "attn_q_a_norm.", "self_attn.q_b_proj.", "attn_q_b.",
	"self_attn.kv_a_proj_with_mqa.", "attn_kv_a_mqa.", "self_attn.kv_a_layernorm.", "attn_kv_a_norm.", "self_attn.kv_b_proj.", "attn_kv_b.",
	"mlp.gate_up_proj.", "ffn_up.", "mlp.gate_proj.", "ffn_gate.", "mlp.up_proj.", "ffn_up.", "mlp.down_proj.", "ffn_down.",
	"mlp.c_fc.", "ffn_up.", "mlp.c_proj.", "ffn_down.",
)

var ownNorm = regexp.MustCompile(`^(.*self_attn\.[qk]_layernorm)\.norms\.\d+\.weight$`)

func (r ggufRecipe) write(c Checkpoint, path string) error {
	d := rowDraw{config: c.Config}
	heads, kv, dim := d.int("num_attention_heads"), d.int("num_key_value_heads"), d.headDim()
	var tensors []stored
	for _, t := range r.converted(c.Tensors, heads, kv, dim) {
		if m := ropeRows.FindStringSubmatch(t.Name); m != nil && r.permute {
			t.Values = interleave(t.Values, map[string]int{"q": heads, "k": kv}[m[1]], t.Shape[0])
		}
		if r.plusOne && strings.HasSuffix(t.Name, "norm.weight") {
			t.Values = slices.Clone(t.Values)
			for i := range t.Values {
				t.Values[i]++
			}
		}
		tensors = append(tensors, stored{ggufRowNames.Replace(t.Name), "F32", t.Shape, encode("F32", t.Values)})
	}
	for _, name := range slices.Sorted(maps.Keys(r.factors)) {
		values := r.factors[name]
		tensors = append(tensors, stored{name + ".weight", "F32", []int{len(values)}, encode("F32", values)})
	}
	return writeGGUFFile(path, append(r.metadata(d, heads, kv), r.keys...), tensors)
}

// converted are tensors under Hugging Face's usual names, one for each of the file's.
func (r ggufRecipe) converted(all []Tensor, heads, kv, dim int) []Tensor {
	var out []Tensor
	at := map[string]int{}
	for _, t := range all {
		t.Name = r.norms.Replace(t.Name)
		if m := ownNorm.FindStringSubmatch(t.Name); m != nil { // heads' norms are stacked
			name := m[1] + ".weight"
			i, begun := at[name]
			if !begun {
				i, at[name] = len(out), len(out)
				out = append(out, Tensor{Name: name, Shape: []int{0, dim}})
			}
			out[i].Shape[0]++
			out[i].Values = append(out[i].Values, t.Values...)
			continue
		}
		if path, ok := strings.CutSuffix(t.Name, "self_attn.qkv_proj.weight"); ok && r.arch == "internlm2" {
			out = append(out, ungroup(t, path, heads, kv, dim)...)
			continue
		}
		out = append(out, t)
	}
	return out
}

// ungroup gives queries, keys and values of heads that lie together by key-value head.
func ungroup(t Tensor, path string, heads, kv, dim int) []Tensor {
	width, each := t.Shape[1], heads/kv
	parts := []Tensor{{Name: path + "self_attn.q_proj.weight"}, {Name: path + "self_attn.k_proj.weight"}, {Name: path + "self_attn.v_proj.weight"}}
	for g := range kv {
		rows := t.Values[g*(each+2)*dim*width:]
		first := 0
		for i, n := range []int{each, 1, 1} {
			parts[i].Values = append(parts[i].Values, rows[first*dim*width:(first+n)*dim*width]...)
			first += n
		}
	}
	for i := range parts {
		parts[i].Shape = []int{len(parts[i].Values) / width, width}
	}
	return parts
}

// metadata is what every architecture has.
func (r ggufRecipe) metadata(d rowDraw, heads, kv int) []ggufField {
	at := func(suffix string, value any) ggufField { return ggufField{r.arch + "." + suffix, value} }
	out := []ggufField{
		{"general.architecture", r.arch},
		{"general.name", r.name},
		{"tokenizer.ggml.model", "none"},
		at("vocab_size", d.int("vocab_size")),
		at("block_count", d.int("num_hidden_layers")),
		at("context_length", d.int("max_position_embeddings")),
		at("embedding_length", d.int("hidden_size")),
		at("feed_forward_length", d.int("intermediate_size")),
		at("attention.head_count", heads),
		at("attention.head_count_kv", kv),
	}
	eps, layer := "attention.layer_norm_rms_epsilon", d.config["rms_norm_eps"]
	for _, key := range []string{"layer_norm_eps", "norm_epsilon"} {
		if v, ok := d.config[key]; ok {
			eps, layer = "attention.layer_norm_epsilon", v
		}
	}
	out = append(out, at(eps, layer))
	if theta, ok := d.config["rope_theta"]; ok {
		out = append(out, at("rope.freq_base", theta))
	}
	if dim := d.int("head_dim"); dim != 0 {
		out = append(out, at("attention.key_length", dim), at("attention.value_length", dim))
	}
	return out
}

// llama3Factors are the divisors that the converter stores for a scaling of type llama3.
func llama3Factors(dims int, theta, factor, original float64) map[string][]float32 {
	out := make([]float32, dims/2)
	for i := range out {
		length := 2 * math.Pi * math.Pow(theta, 2*float64(i)/float64(dims))
		switch low, high := original, original/4; {
		case length < high:
			out[i] = 1
		case length > low:
			out[i] = float32(factor)
		default:
			smooth := (original/length - 1) / 3
			out[i] = float32(1 / ((1-smooth)/factor + smooth))
		}
	}
	return map[string][]float32{"rope_freqs": out}
}

// longFactors are divisors for long contexts, and such as nobody reads for short ones.
func longFactors(short []float64, long ...float64) map[string][]float32 {
	narrow := func(v []float64) []float32 {
		out := make([]float32, len(v))
		for i := range v {
			out[i] = float32(v[i])
		}
		return out
	}
	return map[string][]float32{"rope_factors_long": narrow(long), "rope_factors_short": narrow(short)}
}
