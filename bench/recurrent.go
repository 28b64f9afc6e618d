package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/sdk/artifact"
)

// recurrentShape is Qwen 3.5 of random weights, affine 4 bits in groups of 64: three of four layers are gated delta networks.
type recurrentShape struct {
	shape         // of the attention layers, MLPs and embeddings
	deltaHeads    int
	deltaDim      int // of keys and values alike
	taps          int
	every         int // one layer in so many attends
	rotaryPortion float64
}

// The shape of a small current model.
var smallRecurrent = recurrentShape{
	shape: shape{"qwen3.5-0.8b-q4-g64", 1024, 24, 8, 2, 256, 3584, 248320, 4}, deltaHeads: 16, deltaDim: 128, taps: 4, every: 4, rotaryPortion: 0.25,
}

func (s recurrentShape) attends(layer int) bool { return (layer+1)%s.every == 0 }

func (s recurrentShape) values() int { return s.deltaHeads * s.deltaDim }

// recurrentRows measure it alone, as shapeRows do.
func (o options) recurrentRows(ctx context.Context) ([]Row, error) {
	s := smallRecurrent
	dir := filepath.Join(o.root, "bin", "bench", s.name)
	if err := s.write(dir); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	clade, err := openClade(ctx, o.root, dir, compose.Wishes{Threads: uint32(o.threads)})
	if err != nil {
		return nil, err
	}
	defer clade.close()
	say("%s: %s", s.name, clade.describe())
	if _, err := clade.prefill(ctx, randomIDs(256, s.vocab)); err != nil { // finds its pace
		return nil, err
	}
	const prompt = 512
	var speed []float64
	for range o.repeats {
		d, err := clade.prefill(ctx, randomIDs(prompt, s.vocab))
		if err != nil {
			return nil, err
		}
		speed = append(speed, prompt/d.Seconds())
	}
	rows := []Row{single(fmt.Sprintf("%s/prefill%d", s.name, prompt), "tok/s", speed, "", "")}
	for _, n := range []int{16, 2048} {
		memory, _ := readBandwidth(int(o.threads), 1)
		speed, err := clade.windows(ctx, randomIDs(n, s.vocab), o.repeats)
		if err != nil {
			return nil, err
		}
		after, _ := readBandwidth(int(o.threads), 1)
		name := fmt.Sprintf("%s/decode@%d", s.name, n)
		bytes, bandwidth := s.stepBytes(n), median(append(memory, after...))
		rows = append(rows, single(name, "tok/s", speed, "", ""), Row{
			Name: name + "/bandwidth-fraction", Value: median(speed) * bytes / (bandwidth * 1e9), Unit: "of read bandwidth",
			Note: fmt.Sprintf("%.4g MB a token (weights, KV, and states read and written), %.4g GB/s read", bytes/1e6, bandwidth),
		})
	}
	return rows, nil
}

// stepBytes is what decoding one token moves at a context: weights as stored, float32 keys and values, states both ways.
func (s recurrentShape) stepBytes(context int) float64 {
	values, bytes := float64(s.vocab*s.hidden), 0.0
	for i := range s.layers {
		values += float64(3 * s.hidden * s.inter)
		if s.attends(i) {
			values += float64(s.hidden * s.dim * (3*s.heads + 2*s.kvHeads))
			bytes += float64(s.kvHeads*s.dim*2*4) * float64(context)
			continue
		}
		values += float64(s.hidden * (5*s.values() + 2*s.deltaHeads))
		bytes += float64(2 * 4 * s.values() * s.deltaDim)
	}
	return values*(float64(s.bits)/8+4.0/64) + bytes
}

func (s recurrentShape) write(dir string) error { return writeOnce(dir, s.config(), s.tensors) }

// tensors are in MLX's layout.
func (s recurrentShape) tensors() []artifact.NewTensor {
	r := rand.New(rand.NewPCG(1, 2))
	var tensors []artifact.NewTensor
	matrix := func(path string, rows, cols int) { tensors = append(tensors, s.matrix(r, path, rows, cols)...) }
	same := func(name string, v uint16, dims ...int64) {
		n := 1
		for _, d := range dims {
			n *= int(d)
		}
		tensors = append(tensors, artifact.NewTensor{Name: name, DType: "BF16", Shape: dims, Data: repeat16(v, n)})
	}
	const one, quarter = 0x3f80, 0x3e80
	norm := func(path string, n int) { same(path+".weight", one, int64(n)) }
	const model = "language_model.model."
	matrix(model+"embed_tokens", s.vocab, s.hidden)
	for i := range s.layers {
		layer := fmt.Sprintf("%slayers.%d.", model, i)
		norm(layer+"input_layernorm", s.hidden)
		norm(layer+"post_attention_layernorm", s.hidden)
		if s.attends(i) {
			matrix(layer+"self_attn.q_proj", 2*s.heads*s.dim, s.hidden)
			matrix(layer+"self_attn.k_proj", s.kvHeads*s.dim, s.hidden)
			matrix(layer+"self_attn.v_proj", s.kvHeads*s.dim, s.hidden)
			matrix(layer+"self_attn.o_proj", s.hidden, s.heads*s.dim)
			norm(layer+"self_attn.q_norm", s.dim)
			norm(layer+"self_attn.k_norm", s.dim)
		} else {
			mix, channels := layer+"linear_attn.", 3*s.values()
			matrix(mix+"in_proj_qkv", channels, s.hidden)
			matrix(mix+"in_proj_z", s.values(), s.hidden)
			matrix(mix+"in_proj_b", s.deltaHeads, s.hidden)
			matrix(mix+"in_proj_a", s.deltaHeads, s.hidden)
			same(mix+"conv1d.weight", quarter, int64(channels), int64(s.taps), 1)
			same(mix+"A_log", one, int64(s.deltaHeads))
			same(mix+"dt_bias", one, int64(s.deltaHeads))
			norm(mix+"norm", s.deltaDim)
			matrix(mix+"out_proj", s.hidden, s.values())
		}
		matrix(layer+"mlp.gate_proj", s.inter, s.hidden)
		matrix(layer+"mlp.up_proj", s.inter, s.hidden)
		matrix(layer+"mlp.down_proj", s.hidden, s.inter)
	}
	norm(model+"norm", s.hidden)
	return tensors
}

func (s recurrentShape) config() map[string]any {
	return map[string]any{
		"model_type": "qwen3_5", "architectures": []string{"Qwen3_5ForConditionalGeneration"}, "tie_word_embeddings": true,
		"quantization": map[string]any{"group_size": 64, "bits": s.bits, "mode": "affine"},
		"text_config": map[string]any{
			"model_type": "qwen3_5_text", "hidden_size": s.hidden, "intermediate_size": s.inter, "num_hidden_layers": s.layers,
			"num_attention_heads": s.heads, "num_key_value_heads": s.kvHeads, "head_dim": s.dim, "vocab_size": s.vocab, "rms_norm_eps": 1e-6,
			"max_position_embeddings": 16384, "linear_num_value_heads": s.deltaHeads, "linear_num_key_heads": s.deltaHeads,
			"linear_key_head_dim": s.deltaDim, "linear_value_head_dim": s.deltaDim, "linear_conv_kernel_dim": s.taps,
			"full_attention_interval": s.every, "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": true, "eos_token_id": 0,
			"torch_dtype":     "bfloat16",
			"rope_parameters": map[string]any{"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": s.rotaryPortion, "mrope_section": []int{11, 11, 10}},
		},
	}
}
