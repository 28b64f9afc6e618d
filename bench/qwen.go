package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/core/loader"
	"github.com/clademl/clade/sdk/artifact"
)

// qwenShape is a Qwen 3 of random weights, tied, affine 4 bits in groups of 64.
type qwenShape struct {
	shape
	// experts of a mixture in every layer, width their MLPs'; 0: dense.
	experts, topK, width int
	// written is the entry of the graph table that is measured beside the generic one, whether it would be chosen or not.
	written string
}

var qwenShapes = []qwenShape{
	{shape{"qwen3-0.6b-q4-g64", 1024, 28, 16, 8, 128, 3072, 151936, 4}, 0, 0, 0, "qwen3-avx512-decoder"},
	{shape{"qwen3-150m-q4-g64", 576, 30, 8, 4, 64, 1536, 49152, 4}, 0, 0, 0, "qwen3-avx512-decoder"},
	{shape{"qwen3-moe-8x1536-q4-g64", 1024, 16, 16, 8, 128, 3072, 32768, 4}, 8, 2, 1536, "qwen3-moe-avx512-decoder"},
}

func (s qwenShape) config() map[string]any {
	c := s.shape.config("qwen3")
	if s.experts > 0 {
		c["model_type"], c["num_experts"], c["num_experts_per_tok"] = "qwen3_moe", s.experts, s.topK
		c["moe_intermediate_size"], c["decoder_sparse_step"], c["mlp_only_layers"], c["norm_topk_prob"] = s.width, 1, []int{}, true
	}
	return c
}

func (s qwenShape) write(dir string) error { return writeOnce(dir, s.config(), s.tensors) }

func (s qwenShape) tensors() []artifact.NewTensor {
	r := rand.New(rand.NewPCG(3, 4))
	var tensors []artifact.NewTensor
	matrix := func(path string, rows, cols int) { tensors = append(tensors, s.matrix(r, path, rows, cols)...) }
	norm := func(path string, n int) {
		tensors = append(tensors, artifact.NewTensor{Name: path + ".weight", DType: "BF16", Shape: []int64{int64(n)}, Data: repeat16(0x3f80, n)})
	}
	experts := func(path string, rows, cols int) {
		for _, t := range s.matrix(r, path, s.experts*rows, cols) {
			t.Shape = []int64{int64(s.experts), int64(rows), t.Shape[1]}
			tensors = append(tensors, t)
		}
	}
	matrix("model.embed_tokens", s.vocab, s.hidden)
	for i := range s.layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		norm(layer+"input_layernorm", s.hidden)
		matrix(layer+"self_attn.q_proj", s.heads*s.dim, s.hidden)
		matrix(layer+"self_attn.k_proj", s.kvHeads*s.dim, s.hidden)
		matrix(layer+"self_attn.v_proj", s.kvHeads*s.dim, s.hidden)
		matrix(layer+"self_attn.o_proj", s.hidden, s.heads*s.dim)
		norm(layer+"self_attn.q_norm", s.dim)
		norm(layer+"self_attn.k_norm", s.dim)
		norm(layer+"post_attention_layernorm", s.hidden)
		if s.experts > 0 {
			matrix(layer+"mlp.gate", s.experts, s.hidden)
			experts(layer+"mlp.switch_mlp.gate_proj", s.width, s.hidden)
			experts(layer+"mlp.switch_mlp.up_proj", s.width, s.hidden)
			experts(layer+"mlp.switch_mlp.down_proj", s.hidden, s.width)
			continue
		}
		matrix(layer+"mlp.gate_proj", s.inter, s.hidden)
		matrix(layer+"mlp.up_proj", s.inter, s.hidden)
		matrix(layer+"mlp.down_proj", s.hidden, s.inter)
	}
	norm("model.norm", s.hidden)
	return tensors
}

// writeGGUF makes the same shape for llama.cpp.
func (s qwenShape) writeGGUF(ctx context.Context, python, script, path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	spec, err := json.Marshal(map[string]int{
		"hidden": s.hidden, "layers": s.layers, "heads": s.heads, "kv_heads": s.kvHeads, "dim": s.dim, "inter": s.inter, "vocab": s.vocab,
		"experts": s.experts, "top_k": s.topK, "width": s.width,
	})
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, python, script, string(spec), path+".tmp").CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(script), err, out)
	}
	return os.Rename(path+".tmp", path)
}

// touched is what decoding one token reads at a context: of a mixture the experts that are picked.
func (s qwenShape) touched(context int) float64 {
	if s.experts == 0 {
		return s.stepBytes(context)
	}
	active := s
	active.inter = s.topK * s.width
	return active.stepBytes(context)
}

// qwenRows measure decoding beside the machine's read bandwidth, beside llama.cpp on a GGUF of the shape, and written graphs beside the
// generic one.
func (o options) qwenRows(ctx context.Context) ([]Row, error) {
	var rows []Row
	for _, s := range qwenShapes {
		dir := filepath.Join(o.root, "bin", "bench", s.name)
		if err := s.write(dir); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		measured, err := o.oneQwen(ctx, s, dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		rows = append(rows, measured...)
	}
	return rows, nil
}

func (o options) oneQwen(ctx context.Context, s qwenShape, dir string) ([]Row, error) {
	wishes := compose.Wishes{Threads: uint32(o.threads), Context: pairedContext}
	clade, err := openClade(ctx, o.root, dir, wishes)
	if err != nil {
		return nil, err
	}
	defer clade.close()
	say("%s: %s", s.name, clade.describe())
	rows, err := o.beside(ctx, s, clade)
	if err != nil || s.written == "" {
		return rows, err
	}
	written, err := openGraph(ctx, o.root, dir, wishes, s.written)
	if err != nil {
		return nil, err
	}
	defer written.close()
	table := "qwen3"
	if s.experts > 0 {
		table = "qwen3-moe"
	}
	generic, err := openGraph(ctx, o.root, dir, wishes, table)
	if err != nil {
		return nil, err
	}
	defer generic.close()
	prefill, decode, err := inTurns(ctx, o.repeats, s.vocab, written, generic)
	if err != nil {
		return nil, err
	}
	name := s.name + "/%s/" + s.written
	return append(rows,
		paired(fmt.Sprintf(name, "decode@16"), "tok/s", "graph "+table, decode[0], decode[1], ">= 1.1 x"),
		paired(fmt.Sprintf(name, fmt.Sprintf("prefill%d", prefillTokens)), "tok/s", "graph "+table, prefill[0], prefill[1], ""),
	), nil
}

// beside decodes in turns with llama.cpp.
func (o options) beside(ctx context.Context, s qwenShape, clade *cladeEngine) ([]Row, error) {
	model := filepath.Join(o.root, "bin", "bench", s.name+".gguf")
	if err := s.writeGGUF(ctx, o.python, filepath.Join(o.root, "bench", "peers", "shape_gguf.py"), model); err != nil {
		return nil, err
	}
	prompt := randomIDs(16, s.vocab)
	llama, told, err := o.llamaOn(ctx, model, prompt)
	if err != nil {
		return nil, fmt.Errorf("llama.cpp: %w", err)
	}
	defer llama.close()
	memory, _ := readBandwidth(int(o.threads), 1)
	var ours, theirs []float64
	for i := range o.repeats + 1 {
		speed, err := clade.windows(ctx, prompt, 1)
		if err != nil {
			return nil, err
		}
		d, _, err := llama.decode(ctx, prompt, windowTokens)
		if err != nil {
			return nil, err
		}
		if i > 0 { // the first pair warms up
			ours, theirs = append(ours, speed[0]), append(theirs, windowTokens/d.Seconds())
		}
	}
	after, _ := readBandwidth(int(o.threads), 1)
	bytes, bandwidth := s.touched(16), median(append(memory, after...))
	r := paired(s.name+"/decode@16/llama.cpp", "tok/s", "llama.cpp", ours, theirs, ">= 1.2 x")
	r.Note = "Q4_0 of the same shape, 4.5 bits a value on both sides; " + told
	return []Row{r, {
		Name: s.name + "/decode@16/bandwidth-fraction", Value: median(ours) * bytes / (bandwidth * 1e9), Unit: "of read bandwidth", Goal: ">= 0.6",
		Note: fmt.Sprintf("%.4g MB a token (weights and KV), %.4g GB/s read", bytes/1e6, bandwidth),
	}}, nil
}

// llamaOn opens a model in llama.cpp with its extra buffer types, which are its fastest, where these give the ids that it gives without
// them: random weights have no other right answer, and a compiler may miscompile what they need.
func (o options) llamaOn(ctx context.Context, model string, prompt []int32) (*peer, string, error) {
	script := filepath.Join(o.root, "bench", "peers", "llama.py")
	plain, err := openPeer(ctx, o.python, script, model, uint32(o.threads), "BENCH_LLAMA_EXTRA_BUFFERS=0")
	if err != nil {
		return nil, "", err
	}
	_, want, err := plain.decode(ctx, prompt, 4)
	if err != nil {
		plain.close()
		return nil, "", err
	}
	fast, err := openPeer(ctx, o.python, script, model, uint32(o.threads))
	if err == nil {
		var got []int32
		if _, got, err = fast.decode(ctx, prompt, 4); err == nil && slices.Equal(got, want) {
			plain.close()
			return fast, fast.describe(), nil
		}
		fast.close()
	}
	why := "other ids"
	if err != nil {
		why = err.Error()
	}
	return plain, plain.describe() + "; without its extra buffer types, with which: " + why, nil
}

// inTurns measures prefill and decode of two open models in turns.
func inTurns(ctx context.Context, repeats, vocab int, open ...*cladeEngine) (prefill, decode [2][]float64, err error) {
	for i := range repeats + 1 {
		for j, c := range open {
			d, err := c.prefill(ctx, randomIDs(prefillTokens, vocab))
			if err != nil {
				return prefill, decode, err
			}
			speed, err := c.windows(ctx, randomIDs(16, vocab), 1)
			if err != nil {
				return prefill, decode, err
			}
			if i > 0 { // the first pair finds its pace
				prefill[j] = append(prefill[j], prefillTokens/d.Seconds())
				decode[j] = append(decode[j], speed[0])
			}
		}
	}
	return prefill, decode, nil
}

// openGraph opens a model on an entry of its graph table.
func openGraph(ctx context.Context, root, model string, w compose.Wishes, graph string) (*cladeEngine, error) {
	return openAs(ctx, root, model, loader.Wishes{Wishes: w, Graph: graph}, loader.Choices{})
}
