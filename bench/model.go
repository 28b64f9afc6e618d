package main

import (
	"context"
	"fmt"
	"time"

	"github.com/clademl/clade/sdk/artifact"
)

const (
	prefillTokens = 512
	decodeTokens  = 64
	modelName     = "smollm2-135m-q4_1"
)

// prompt512 are ids spread over the vocabulary, past its special tokens: what they say does not matter to the time.
func prompt512() []int32 {
	ids := make([]int32, prefillTokens)
	for i := range ids {
		ids[i] = int32(100 + i*7919%40000)
	}
	return ids
}

type namedEngine struct {
	name   string // as in a row's name
	engine engine
	goals  [2]string // prefill, decode
}

// modelRows measure clade against each peer, prefill and decode, in turns.
func modelRows(ctx context.Context, clade engine, peers []namedEngine, repeats int, say func(string, ...any)) ([]Row, error) {
	var rows []Row
	for _, p := range peers {
		for i, work := range []struct {
			name   string
			tokens float64
			run    func(engine) (time.Duration, error)
		}{
			{fmt.Sprintf("prefill%d", prefillTokens), prefillTokens, func(e engine) (time.Duration, error) { return e.prefill(ctx, prompt512()) }},
			{"decode", decodeTokens, func(e engine) (time.Duration, error) {
				d, _, err := e.decode(ctx, question, decodeTokens)
				return d, err
			}},
		} {
			name := modelName + "/" + work.name + "/" + p.name
			say("%s", name)
			var ours, theirs []float64
			for range repeats {
				a, err := work.run(clade)
				if err != nil {
					return nil, fmt.Errorf("%s: clade: %w", name, err)
				}
				b, err := work.run(p.engine)
				if err != nil {
					return nil, fmt.Errorf("%s: %s: %w", name, p.name, err)
				}
				ours, theirs = append(ours, work.tokens/a.Seconds()), append(theirs, work.tokens/b.Seconds())
			}
			rows = append(rows, paired(name, "tok/s", p.name, ours, theirs, p.goals[i]))
		}
	}
	return rows, nil
}

// bytesPerToken is what a decode step has to read of the model as it is stored: every tensor once (the embedding is the
// output matrix too), and the keys and values of the positions before it, as float32, at the middle of the decode.
func bytesPerToken(model string) (float64, error) {
	a, err := artifact.Open(model)
	if err != nil {
		return 0, err
	}
	defer a.Close()
	var total int64
	for _, t := range a.Tensors() {
		total += t.Bytes
	}
	var kv int64 = 2 * 4
	for _, key := range []string{"num_hidden_layers", "num_key_value_heads"} {
		v, ok, err := a.Config().Int(key)
		if err != nil || !ok {
			return 0, fmt.Errorf("%s: no %s: %w", model, key, err)
		}
		kv *= v
	}
	heads, _, err := a.Config().Int("num_attention_heads")
	if err != nil {
		return 0, err
	}
	width, ok, err := a.Config().Int("hidden_size")
	if err != nil || !ok || heads == 0 {
		return 0, fmt.Errorf("%s: no head width: %w", model, err)
	}
	kv *= width / heads
	return float64(total + kv*int64(len(question)+decodeTokens/2)), nil
}

// fractionRow says which share of the read bandwidth clade's decode would explain at the stored weights' size.
func fractionRow(decode Row, bytes, bandwidth float64) Row {
	r := Row{
		Name: modelName + "/decode/bandwidth-fraction", Value: decode.Value * bytes / (bandwidth * 1e9), Unit: "of read bandwidth",
		Note: fmt.Sprintf("%.1f MB a token as stored (weights and KV), %.4g GB/s read", bytes/1e6, bandwidth),
	}
	if r.Value > 1 {
		r.Note += "; more than the machine reads: other programs slowed the bandwidth's measurement, measure again on an idle machine"
	}
	return r
}
