package tiny

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// rowRecipe is one checkpoint of the dense graph: an architecture, what its config says, and the tensors beside llama's.
type rowRecipe struct {
	name, kind string
	config     map[string]any
	tensors    rowTensors
	bits       int // of affine weights in groups of 32; 0 stores float32
}

// rowTensors says which tensors a row has, under its own names. The zero value is a llama without norms.
type rowTensors struct {
	norms         []string // of a layer, as wide as the model
	mean          float64  // of norms' weights: 1, or 0 where they are stored less one
	normBias      bool
	qkv, o, mlp   bool // biases
	head          bool // its own head
	headNorms     bool // q_norm and k_norm as wide as a head
	fullNorms     bool // as all heads
	fused         bool // qkv_proj and gate_up_proj
	fusedGate     bool // gate_up_proj alone
	ungated       [2]string
	prefix        string // in front of every name
	extra         func(r *rowDraw)
	withoutHidden bool
}

var (
	preNorms  = []string{"input_layernorm", "post_attention_layernorm"}
	postNorms = []string{"post_attention_layernorm", "post_feedforward_layernorm"}
	fourNorms = []string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}
)

// Dense lists the checkpoints of the dense graph's rows: NAME-a of each is what `make test` runs, NAME-b what `make test-full` runs
// beside. With names only those are drawn.
func Dense(names ...string) []Checkpoint {
	var out []Checkpoint
	for _, r := range rowRecipes() {
		if len(names) == 0 || slices.Contains(names, r.name) {
			out = append(out, r.checkpoint())
		}
	}
	return out
}

// DenseNames lists the names of Dense's checkpoints.
func DenseNames() []string {
	var out []string
	for _, r := range rowRecipes() {
		out = append(out, r.name)
	}
	return out
}

func rowRecipes() []rowRecipe {
	return []rowRecipe{
		{"qwen2-a", "qwen2", nil, rowTensors{norms: preNorms, mean: 1, qkv: true}, 0},
		{
			"qwen2-b", "qwen2", with(small, "rope_parameters", map[string]any{"rope_type": "default", "rope_theta": 1000000.0}, "tie_word_embeddings", false),
			rowTensors{norms: preNorms, mean: 1, qkv: true, head: true},
			4,
		},
		{
			"qwen3-a", "qwen3",
			map[string]any{"head_dim": 32, "rope_theta": 1e6, "tie_word_embeddings": false},
			rowTensors{norms: preNorms, mean: 1, headNorms: true, head: true},
			0,
		},
		{
			"qwen3-b", "qwen3", with(small, "head_dim", 24, "rope_theta", 1e6, "tie_word_embeddings", true),
			rowTensors{norms: preNorms, mean: 1, headNorms: true},
			4,
		},
		{"smollm3-a", "smollm3", map[string]any{"rope_theta": 5e6}, rowTensors{norms: preNorms, mean: 1}, 0},
		{
			"smollm3-b", "smollm3", with(small, "no_rope_layers", []int{0, 1, 0}, "attention_bias", true, "mlp_bias", true),
			rowTensors{norms: preNorms, mean: 1, qkv: true, o: true, mlp: true},
			4,
		},
		{"gemma-a", "gemma", map[string]any{"head_dim": 32, "hidden_act": "gelu"}, rowTensors{norms: preNorms}, 0},
		{"gemma-b", "gemma", with(small, "head_dim", 24, "num_key_value_heads", 1), rowTensors{norms: preNorms}, 4},
		{
			"gemma2-a", "gemma2",
			map[string]any{"head_dim": 32, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 2.0},
			rowTensors{norms: fourNorms},
			0,
		},
		{"gemma2-b", "gemma2", with(small, "head_dim", 24), rowTensors{norms: fourNorms}, 4},
	}
}

// small is another shape than the usual one: odd where a format allows it, and none that the attention kernel takes.
var small = map[string]any{
	"hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 199,
}

// with is base and more: keys and values in turn.
func with(base map[string]any, more ...any) map[string]any {
	out := maps.Clone(base)
	for i := 0; i < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

func (r rowRecipe) checkpoint() Checkpoint {
	config := map[string]any{
		"model_type": r.kind, "hidden_size": 96, "intermediate_size": 224, "num_hidden_layers": 4, "num_attention_heads": 6,
		"num_key_value_heads": 3, "vocab_size": 211, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "bos_token_id": 1, "eos_token_id": 2,
		"torch_dtype": "float32",
	}
	maps.Copy(config, r.config)
	store := safetensors("F32")
	if r.bits != 0 {
		block := map[string]any{"group_size": 32, "bits": r.bits, "mode": "affine"}
		config["quantization"], config["quantization_config"] = block, block
		store = quantizedStore
	}
	d := &rowDraw{config: config, has: r.tensors}
	d.draw()
	return Checkpoint{Name: r.name, Config: config, Tensors: d.out, store: store}
}

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
	name = r.has.prefix + name
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
	r.add("model.embed_tokens.weight", 0, 0.1/max(1, r.embedScale()), vocab, hidden)
	for i := range r.int("num_hidden_layers") {
		r.layer(fmt.Sprintf("model.layers.%d.", i))
	}
	r.norm("model.norm", hidden)
	if r.has.head {
		r.linear("lm_head", vocab, hidden, false)
	}
}

// embedScale is what the graph multiplies embeddings with, roughly.
func (r *rowDraw) embedScale() float64 {
	if r.has.mean == 0 {
		return math.Sqrt(float64(r.int("hidden_size")))
	}
	return 1
}

func (r *rowDraw) layer(layer string) {
	hidden, inter, dim := r.int("hidden_size"), r.int("intermediate_size"), r.headDim()
	q, kv := r.int("num_attention_heads")*dim, r.int("num_key_value_heads")*dim
	for _, name := range r.has.norms {
		r.norm(layer+name, hidden)
	}
	attn := layer + "self_attn."
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
	}
	switch {
	case r.has.ungated[0] != "":
		r.linear(layer+r.has.ungated[0], inter, hidden, r.has.mlp)
		r.linear(layer+r.has.ungated[1], hidden, inter, r.has.mlp)
		return
	case r.has.fused || r.has.fusedGate:
		r.linear(layer+"mlp.gate_up_proj", 2*inter, hidden, r.has.mlp)
	default:
		r.linear(layer+"mlp.gate_proj", inter, hidden, r.has.mlp)
		r.linear(layer+"mlp.up_proj", inter, hidden, r.has.mlp)
	}
	r.linear(layer+"mlp.down_proj", hidden, inter, r.has.mlp)
}
