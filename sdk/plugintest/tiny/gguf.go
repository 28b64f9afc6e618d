package tiny

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/weights/quant"
)

const ggufAlignment = 32

// ggmlTypes are the type numbers of ggml.h.
var ggmlTypes = map[string]uint32{
	"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13,
	"Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23, "BF16": 30, "MXFP4": 39,
}

// ggufNames maps the last parts of a llama tensor's name; llama.cpp's gguf-py tensor_mapping is the source.
var ggufNames = strings.NewReplacer(
	"model.embed_tokens.", "token_embd.", "model.layers.", "blk.", "model.norm.", "output_norm.", "lm_head.", "output.",
	"self_attn.q_norm.", "attn_q_norm.", "self_attn.k_norm.", "attn_k_norm.",
	"input_layernorm.", "attn_norm.", "post_attention_layernorm.", "ffn_norm.",
	"self_attn.q_proj.", "attn_q.", "self_attn.k_proj.", "attn_k.", "self_attn.v_proj.", "attn_v.",
	"self_attn.o_proj.", "attn_output.", "mlp.gate_proj.", "ffn_gate.", "mlp.up_proj.", "ffn_up.", "mlp.down_proj.", "ffn_down.",
	"mlp.gate.", "ffn_gate_inp.", "mlp.switch_mlp.gate_proj.", "ffn_gate_exps.", "mlp.switch_mlp.up_proj.", "ffn_up_exps.",
	"mlp.switch_mlp.down_proj.", "ffn_down_exps.",
)

// ggufArchs are the architectures whose name is not the type's.
var ggufArchs = map[string]string{"qwen3_moe": "qwen3moe"}

var ropeRows = regexp.MustCompile(`self_attn\.([qk])_proj\.`)

// gguf stores matrices in one ggml type and vectors as F32, as llama.cpp's converter does: a llama's q and k rows go to
// the interleaved rope order.
func gguf(dtype string) func(Checkpoint, string) error {
	return mixed(func(string) string { return dtype })
}

// mixed stores matrices in the type that a name of the file has.
func mixed(dtype func(name string) string) func(Checkpoint, string) error {
	return func(c Checkpoint, path string) error {
		var tensors []stored
		for _, t := range c.Tensors {
			if m := ropeRows.FindStringSubmatch(t.Name); m != nil && c.Config["model_type"] == "llama" {
				heads := c.Config[map[string]string{"q": "num_attention_heads", "k": "num_key_value_heads"}[m[1]]].(int)
				t.Values = interleave(t.Values, heads, t.Shape[0])
			}
			s := stored{ggufNames.Replace(t.Name), "F32", t.Shape, nil}
			if len(t.Shape) > 1 {
				s.dtype = dtype(s.name)
			}
			s.data = encodeGGUF(s.dtype, t)
			tensors = append(tensors, s)
		}
		return writeGGUF(c, path, tensors)
	}
}

func encodeGGUF(dtype string, t Tensor) []byte {
	block, ok := quant.BlockFormat(dtype)
	if !ok {
		return encode(dtype, t.Values)
	}
	var out []byte
	for row := range slices.Chunk(t.Values, t.Shape[len(t.Shape)-1]) {
		packed, quantizes := block.Quantize(row)
		if !quantizes {
			return anyBlocks(block, t)
		}
		out = append(out, packed...)
	}
	return out
}

// interleave moves row half*D/2+i of a head to row 2*i+half.
func interleave(values []float32, heads, rows int) []float32 {
	out := make([]float32, len(values))
	dim, width := rows/heads, len(values)/rows
	for r := range rows {
		head, within := r/dim, r%dim
		to := head*dim + 2*(within%(dim/2)) + within/(dim/2)
		copy(out[to*width:(to+1)*width], values[r*width:(r+1)*width])
	}
	return out
}

type ggufWriter struct{ out []byte }

func (w *ggufWriter) u32(v uint32) { w.out = binary.LittleEndian.AppendUint32(w.out, v) }
func (w *ggufWriter) u64(v uint64) { w.out = binary.LittleEndian.AppendUint64(w.out, v) }
func (w *ggufWriter) text(s string) {
	w.u64(uint64(len(s)))
	w.out = append(w.out, s...)
}

// keyValue writes one metadata entry: uint32, float32, string, bool, integers or booleans.
func (w *ggufWriter) keyValue(key string, value any) {
	w.text(key)
	switch v := value.(type) {
	case int:
		w.u32(4)
		w.u32(uint32(v))
	case float64:
		w.u32(6)
		w.u32(math.Float32bits(float32(v)))
	case string:
		w.u32(8)
		w.text(v)
	case bool:
		w.u32(7)
		w.flag(v)
	case []int:
		w.u32(9)
		w.u32(5)
		w.u64(uint64(len(v)))
		for _, n := range v {
			w.u32(uint32(n))
		}
	case []bool:
		w.u32(9)
		w.u32(7)
		w.u64(uint64(len(v)))
		for _, b := range v {
			w.flag(b)
		}
	}
}

func (w *ggufWriter) flag(v bool) {
	if v {
		w.out = append(w.out, 1)
	} else {
		w.out = append(w.out, 0)
	}
}

func (w *ggufWriter) pad() {
	for len(w.out)%ggufAlignment != 0 {
		w.out = append(w.out, 0)
	}
}

type ggufField struct {
	key   string
	value any
}

func writeGGUF(c Checkpoint, path string, tensors []stored) error {
	arch := c.Config["model_type"].(string)
	if name, ok := ggufArchs[arch]; ok {
		arch = name
	}
	headDim, own := c.Config["head_dim"].(int)
	if !own {
		headDim = c.Config["hidden_size"].(int) / c.Config["num_attention_heads"].(int)
	}
	metadata := []ggufField{
		{"general.architecture", arch},
		{"general.name", c.Name},
		{"general.alignment", ggufAlignment},
		{arch + ".block_count", c.Config["num_hidden_layers"]},
		{arch + ".context_length", c.Config["max_position_embeddings"]},
		{arch + ".embedding_length", c.Config["hidden_size"]},
		{arch + ".feed_forward_length", c.Config["intermediate_size"]},
		{arch + ".attention.head_count", c.Config["num_attention_heads"]},
		{arch + ".attention.head_count_kv", c.Config["num_key_value_heads"]},
		{arch + ".attention.layer_norm_rms_epsilon", c.Config["rms_norm_eps"]},
		{arch + ".rope.dimension_count", headDim},
		{arch + ".rope.freq_base", c.Config["rope_theta"]},
		{arch + ".vocab_size", c.Config["vocab_size"]},
		{"tokenizer.ggml.bos_token_id", c.Config["bos_token_id"]},
		{"tokenizer.ggml.eos_token_id", c.Config["eos_token_id"]},
	}
	if own {
		metadata = append(metadata, ggufField{arch + ".attention.key_length", headDim}, ggufField{arch + ".attention.value_length", headDim})
	}
	if experts, ok := c.Config["num_experts"]; ok {
		metadata = append(metadata, ggufField{"tokenizer.ggml.model", "none"}, ggufField{arch + ".expert_count", experts},
			ggufField{arch + ".expert_used_count", c.Config["num_experts_per_tok"]},
			ggufField{arch + ".expert_feed_forward_length", c.Config["moe_intermediate_size"]})
	}
	return writeGGUFFile(path, metadata, tensors)
}

func writeGGUFFile(path string, metadata []ggufField, tensors []stored) error {
	w := &ggufWriter{out: []byte("GGUF")}
	w.u32(3)
	w.u64(uint64(len(tensors)))
	w.u64(uint64(len(metadata)))
	for _, m := range metadata {
		w.keyValue(m.key, m.value)
	}
	offset := 0
	for _, t := range tensors {
		w.text(t.name)
		w.u32(uint32(len(t.shape)))
		for _, d := range slices.Backward(t.shape) {
			w.u64(uint64(d))
		}
		w.u32(ggmlTypes[t.dtype])
		w.u64(uint64(offset))
		offset += (len(t.data) + ggufAlignment - 1) / ggufAlignment * ggufAlignment
	}
	w.pad()
	for _, t := range tensors {
		w.out = append(w.out, t.data...)
		w.pad()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, w.out, 0o644)
}
