package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/artifact"
)

// shape is a llama-shaped model of random weights: what it says means nothing, how fast it says it does.
type shape struct {
	name                                              string
	hidden, layers, heads, kvHeads, dim, inter, vocab int
	bits                                              int // affine, groups of 64; 0: bfloat16
}

// The 0.6B shape is that of a small current model, tied.
var shapes = []shape{
	{"llama-0.6b-q4-g64", 1024, 28, 16, 8, 128, 3072, 151936, 4},
	{"llama-0.6b-bf16", 1024, 28, 16, 8, 128, 3072, 151936, 0},
}

var (
	shapePrefills = []int{16, 128, 512, 2048}
	shapeContexts = []int{16, 2048, 8192}
)

// windowTokens is how many decode steps one repeat times; the repeats follow one another in one generation.
const windowTokens = 16

// writeOnce makes a checkpoint in dir unless it is there.
func writeOnce(dir string, config map[string]any, tensors func() []artifact.NewTensor) error {
	path := filepath.Join(dir, "config.json")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := artifact.WriteSafetensors(filepath.Join(dir, "model.safetensors"), tensors(), map[string]string{"format": "mlx"}); err != nil {
		return err
	}
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644) // last: its presence says that the rest is there
}

func (s shape) write(dir string) error { return writeOnce(dir, s.config("llama"), s.tensors) }

// config is that of a model type whose keys are llama's.
func (s shape) config(modelType string) map[string]any {
	config := map[string]any{
		"model_type": modelType, "hidden_size": s.hidden, "num_hidden_layers": s.layers, "num_attention_heads": s.heads,
		"num_key_value_heads": s.kvHeads, "head_dim": s.dim, "intermediate_size": s.inter, "vocab_size": s.vocab,
		"rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": true, "max_position_embeddings": 16384,
		"torch_dtype": "bfloat16", "eos_token_id": 0, "bos_token_id": 1,
	}
	if s.bits > 0 {
		config["quantization"] = map[string]any{"group_size": 64, "bits": s.bits, "mode": "affine"}
	}
	return config
}

func (s shape) tensors() []artifact.NewTensor { return s.drawn(rand.New(rand.NewPCG(1, 2))) }

// drawn takes the values from r, the first layers' first.
func (s shape) drawn(r *rand.Rand) []artifact.NewTensor {
	var tensors []artifact.NewTensor
	matrix := func(path string, rows, cols int) { tensors = append(tensors, s.matrix(r, path, rows, cols)...) }
	norm := func(path string) {
		tensors = append(tensors, artifact.NewTensor{Name: path + ".weight", DType: "BF16", Shape: []int64{int64(s.hidden)}, Data: repeat16(0x3f80, s.hidden)})
	}
	matrix("model.embed_tokens", s.vocab, s.hidden)
	for i := range s.layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		norm(layer + "input_layernorm")
		matrix(layer+"self_attn.q_proj", s.heads*s.dim, s.hidden)
		matrix(layer+"self_attn.k_proj", s.kvHeads*s.dim, s.hidden)
		matrix(layer+"self_attn.v_proj", s.kvHeads*s.dim, s.hidden)
		matrix(layer+"self_attn.o_proj", s.hidden, s.heads*s.dim)
		norm(layer + "post_attention_layernorm")
		matrix(layer+"mlp.gate_proj", s.inter, s.hidden)
		matrix(layer+"mlp.up_proj", s.inter, s.hidden)
		matrix(layer+"mlp.down_proj", s.hidden, s.inter)
	}
	norm("model.norm")
	return tensors
}

// matrix is random values of about 0.02, dense or as random codes.
func (s shape) matrix(r *rand.Rand, path string, rows, cols int) []artifact.NewTensor {
	dims := []int64{int64(rows), int64(cols)}
	if s.bits == 0 {
		data := make([]byte, rows*cols*2)
		for i := 0; i < len(data); i += 8 {
			bits := r.Uint64()
			for j := range 4 { // sign and mantissa at random, exponent of 2^-6 or 2^-7
				h := uint16(bits>>(16*j))&0x80ff | 0x3c00
				data[i+2*j], data[i+2*j+1] = byte(h), byte(h>>8)
			}
		}
		return []artifact.NewTensor{{Name: path + ".weight", DType: "BF16", Shape: dims, Data: data}}
	}
	data := make([]byte, rows*cols*s.bits/8)
	for i := 0; i < len(data); i += 8 {
		bits := r.Uint64()
		for j := range 8 {
			data[i+j] = byte(bits >> (8 * j))
		}
	}
	groups := []int64{int64(rows), int64(cols / 64)}
	return []artifact.NewTensor{
		{Name: path + ".weight", DType: "U32", Shape: []int64{int64(rows), int64(cols * s.bits / 32)}, Data: data},
		{Name: path + ".scales", DType: "BF16", Shape: groups, Data: repeat16(0x3b80, rows*cols/64)}, // 2^-8
		{Name: path + ".biases", DType: "BF16", Shape: groups, Data: repeat16(0xbcf0, rows*cols/64)}, // -7.5 * 2^-8
	}
}

func repeat16(v uint16, n int) []byte {
	out := make([]byte, 2*n)
	for i := range n {
		out[2*i], out[2*i+1] = byte(v), byte(v>>8)
	}
	return out
}

// weights is how many values a token is multiplied by in the layers, and in the output matrix.
func (s shape) weights() (layers, output float64) {
	attention := s.hidden * s.dim * (2*s.heads + 2*s.kvHeads)
	return float64(s.layers) * float64(attention+3*s.hidden*s.inter), float64(s.vocab) * float64(s.hidden)
}

// stepBytes is what decoding one token reads at a context: weights as stored, and float32 keys and values.
func (s shape) stepBytes(context int) float64 {
	layers, output := s.weights()
	perValue := 2.0
	if s.bits > 0 {
		perValue = float64(s.bits)/8 + 4.0/64
	}
	return (layers+output)*perValue + float64(s.layers*s.kvHeads*s.dim*2*4)*float64(context)
}

// prefillFlops counts products and sums of n tokens: the layers' matrices, and causal attention.
func (s shape) prefillFlops(n int) float64 {
	layers, _ := s.weights()
	return 2*layers*float64(n) + 2*float64(s.layers*s.heads*s.dim)*float64(n)*float64(n)
}

// shapeRows measure clade alone on models of random weights: each figure beside what the machine can do.
func (o options) shapeRows(ctx context.Context) ([]Row, error) {
	best, note, err := bestMatmul(ctx, o.python, filepath.Join(o.root, "bench", "peers", "matmul.py"), o.threads)
	if err != nil {
		return nil, err
	}
	rows := []Row{single("machine/best-matmul", "GFLOP/s", best, "", note)}
	for _, s := range shapes {
		dir := filepath.Join(o.root, "bin", "bench", s.name)
		if err := s.write(dir); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		measured, err := o.oneShape(ctx, s, dir, median(best))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		rows = append(rows, measured...)
	}
	return rows, nil
}

func (o options) oneShape(ctx context.Context, s shape, dir string, matmul float64) ([]Row, error) {
	clade, err := openClade(ctx, o.root, dir, compose.Wishes{Threads: uint32(o.threads)})
	if err != nil {
		return nil, err
	}
	defer clade.close()
	say("%s: %s", s.name, clade.describe())
	var rows []Row
	if _, err := clade.prefill(ctx, randomIDs(256, s.vocab)); err != nil { // finds its pace
		return nil, err
	}
	for _, n := range shapePrefills {
		var speed []float64
		for range o.repeats {
			d, err := clade.prefill(ctx, randomIDs(n, s.vocab))
			if err != nil {
				return nil, err
			}
			speed = append(speed, float64(n)/d.Seconds())
		}
		name := fmt.Sprintf("%s/prefill%d", s.name, n)
		say("%s", name)
		rows = append(rows, single(name, "tok/s", speed, "", ""))
		rate := median(speed) * s.prefillFlops(n) / float64(n) / 1e9
		rows = append(rows, Row{
			Name: name + "/matmul-fraction", Value: rate / matmul, Unit: "of the best matmul", Goal: goalIf(n == 512, ">= 0.6"),
			Note: fmt.Sprintf("%.4g GFLOP/s of the layers, attention included", rate),
		})
	}
	for _, n := range shapeContexts {
		say("%s/decode@%d", s.name, n)
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
			Goal: goalIf(s.bits > 0 && n != 2048, ">= 0.6"), Note: fmt.Sprintf("%.4g MB a token (weights and KV), %.4g GB/s read", bytes/1e6, bandwidth),
		})
	}
	return rows, nil
}

func goalIf(yes bool, goal string) string {
	if yes {
		return goal
	}
	return ""
}

func randomIDs(n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(100 + i*7919%(vocab-200))
	}
	return ids
}

// windows decodes behind ids and returns the speed of each window of steps.
func (c *cladeEngine) windows(ctx context.Context, ids []int32, repeats int) ([]float64, error) {
	var at []time.Time
	n := uint32(repeats*windowTokens + 1)
	zero, past := 0.0, true
	r, err := c.model.Generate(ctx, generate.Prompt{IDs: ids}, generate.Settings{MaxTokens: &n, Temperature: &zero, IgnoreEOS: &past}, func(d generate.Delta) error {
		for range max(1, len(d.IDs)) {
			at = append(at, time.Now())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(r.IDs) != int(n) || len(at) < int(n) {
		return nil, fmt.Errorf("%d tokens came in %d messages, %d were asked for", len(r.IDs), len(at), n)
	}
	var out []float64
	for i := range repeats {
		out = append(out, windowTokens/at[(i+1)*windowTokens].Sub(at[i*windowTokens]).Seconds())
	}
	return out, nil
}

// bestMatmul is GFLOP/s of float32 2048^3 products, the best library and number of threads there is, one value a repeat.
func bestMatmul(ctx context.Context, python, script string, threads uint) (speeds []float64, note string, err error) {
	out, err := exec.CommandContext(ctx, python, script, strconv.Itoa(int(threads))).Output()
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", filepath.Base(script), err)
	}
	var a struct {
		GFlops []float64 `json:"gflops"`
		Tried  []string  `json:"tried"`
	}
	if err := json.Unmarshal(out, &a); err != nil || len(a.GFlops) == 0 {
		return nil, "", fmt.Errorf("%s: %q is no answer", filepath.Base(script), out)
	}
	return a.GFlops, "2048^3 float32: " + strings.Join(a.Tried, "; "), nil
}
