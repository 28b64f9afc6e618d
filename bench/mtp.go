package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
)

// predictedShape is smallRecurrent with a head for multi-token prediction, made so that its answers are known: what layers add to the
// residual stream is zero, and the output knows a successor of every embedding. So does the head, from the first dims of an embedding: all
// of them are always right, few not.
type predictedShape struct {
	recurrentShape
	dims int
}

// successor is the token behind a token.
func (s predictedShape) successor(id int) int { return (id*37 + 11) % s.vocab }

// mtpRows measure decoding with a head and without, in turns: one that is always right, and one that is wrong at times.
func (o options) mtpRows(ctx context.Context) ([]Row, error) {
	var rows []Row
	for _, c := range []struct {
		predictedShape
		requests []int
	}{{predictedShape{smallRecurrent, smallRecurrent.hidden}, []int{1, 4}}, {predictedShape{smallRecurrent, 28}, []int{1}}} {
		s := c.predictedShape
		s.name = fmt.Sprintf("%s-mtp%d", s.name, s.dims)
		dir := filepath.Join(o.root, "bin", "bench", s.name)
		if err := writeOnce(dir, s.config(), s.tensors); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		for _, requests := range c.requests {
			r, err := o.speculation(ctx, drafting{
				name: fmt.Sprintf("%s/decode@%d", s.name, requests), model: dir, draft: "mtp", ids: randomIDs(64, s.vocab), requests: requests,
				tokens: speculationTokens, goal: ">= 0.97 x",
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// tensors are smallRecurrent's with an output of its own, and those of the head.
func (s predictedShape) tensors() []artifact.NewTensor {
	tensors := s.recurrentShape.tensors()
	var embed [3]artifact.NewTensor
	for i, t := range tensors {
		for _, end := range []string{".o_proj.", ".out_proj.", ".down_proj."} {
			if strings.Contains(t.Name, end) && t.DType == "BF16" { // scales and biases
				tensors[i].Data = make([]byte, len(t.Data))
			}
		}
		for part, end := range []string{".weight", ".scales", ".biases"} {
			if t.Name == "language_model.model.embed_tokens"+end {
				embed[part] = t
			}
		}
	}
	for _, t := range embed {
		row, data := len(t.Data)/s.vocab, make([]byte, len(t.Data))
		for id := range s.vocab {
			copy(data[s.successor(id)*row:], t.Data[id*row:(id+1)*row])
		}
		t.Name, t.Data = strings.Replace(t.Name, "language_model.model.embed_tokens", "language_model.lm_head", 1), data
		tensors = append(tensors, t)
	}
	return append(tensors, s.head()...)
}

// head is a layer that adds nothing behind the first dims of the last token's embedding.
func (s predictedShape) head() []artifact.NewTensor {
	r := rand.New(rand.NewPCG(3, 4))
	var out []artifact.NewTensor
	const one = 0x3f80
	norm := func(path string, n int) {
		out = append(out, artifact.NewTensor{Name: path + ".weight", DType: "BF16", Shape: []int64{int64(n)}, Data: repeat16(one, n)})
	}
	matrix := func(path string, rows, cols int, zero bool) {
		parts := s.matrix(r, path, rows, cols)
		for i := range parts {
			if zero && parts[i].DType == "BF16" {
				parts[i].Data = make([]byte, len(parts[i].Data))
			}
		}
		out = append(out, parts...)
	}
	fc := make([]byte, 2*s.hidden*2*s.hidden)
	for i := range s.dims {
		binary.LittleEndian.PutUint16(fc[2*(i*2*s.hidden+i):], one)
	}
	out = append(out, artifact.NewTensor{Name: "mtp.fc.weight", DType: "BF16", Shape: []int64{int64(s.hidden), int64(2 * s.hidden)}, Data: fc})
	const layer = "mtp.layers.0."
	for _, path := range []string{"mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm", layer + "input_layernorm", layer + "post_attention_layernorm"} {
		norm(path, s.hidden)
	}
	norm(layer+"self_attn.q_norm", s.dim)
	norm(layer+"self_attn.k_norm", s.dim)
	matrix(layer+"self_attn.q_proj", 2*s.heads*s.dim, s.hidden, false)
	matrix(layer+"self_attn.k_proj", s.kvHeads*s.dim, s.hidden, false)
	matrix(layer+"self_attn.v_proj", s.kvHeads*s.dim, s.hidden, false)
	matrix(layer+"self_attn.o_proj", s.hidden, s.heads*s.dim, true)
	matrix(layer+"mlp.gate_proj", s.inter, s.hidden, false)
	matrix(layer+"mlp.up_proj", s.inter, s.hidden, false)
	matrix(layer+"mlp.down_proj", s.hidden, s.inter, true)
	return out
}

func (s predictedShape) config() map[string]any {
	c := s.recurrentShape.config()
	text := c["text_config"].(map[string]any)
	c["tie_word_embeddings"], text["tie_word_embeddings"], text["mtp_num_hidden_layers"] = false, false, 1
	return c
}
