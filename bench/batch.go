package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/core/generate"
)

// batchRows measure requests of one model that decode together, all tokens a second, beside llama.cpp's batched decoding.
func (o options) batchRows(ctx context.Context) ([]Row, error) {
	clade, err := openClade(ctx, o.root, o.model, compose.Wishes{Threads: uint32(o.threads), Rows: 16})
	if err != nil {
		return nil, err
	}
	defer clade.close()
	if err := sound(ctx, clade, 0); err != nil {
		return nil, err
	}
	llama, told, err := o.peer(ctx, "llama.py", 1) // as in modelRows: it rounds activations
	if err != nil {
		return nil, fmt.Errorf("llama.cpp: %w", err)
	}
	defer llama.close()
	var rows []Row
	for _, batch := range []struct {
		size int
		goal string
	}{{1, ""}, {4, ""}, {8, ">= 1.2 x"}, {16, ""}} {
		var ours, theirs []float64
		for i := range o.repeats + 1 {
			a, err := clade.decodeBatch(ctx, question, batch.size)
			if err != nil {
				return nil, err
			}
			b, err := llama.decodeBatch(question, batch.size)
			if err != nil {
				return nil, err
			}
			if i > 0 { // the first pair warms up
				ours, theirs = append(ours, a), append(theirs, b)
			}
		}
		r := paired(fmt.Sprintf("%s/decode/batch%d/llama.cpp", modelName, batch.size), "tok/s", "llama.cpp", ours, theirs, batch.goal)
		r.Note = "tokens of all requests while all of them decode; " + told
		rows = append(rows, r)
	}
	return rows, nil
}

// decodeBatch is the tokens a second of n requests together, from the last one's first token to the first one's end.
func (c *cladeEngine) decodeBatch(ctx context.Context, ids []int32, n int) (float64, error) {
	zero, past, most := 0.0, true, uint32(decodeTokens+1)
	times, errs := make([][]time.Time, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			settings := generate.Settings{MaxTokens: &most, Temperature: &zero, IgnoreEOS: &past}
			_, errs[i] = c.model.Generate(ctx, generate.Prompt{IDs: ids}, settings, func(d generate.Delta) error {
				for range d.IDs {
					times[i] = append(times[i], time.Now())
				}
				return nil
			})
		})
	}
	wg.Wait()
	var begin, end time.Time
	for i := range n {
		if errs[i] != nil {
			return 0, errs[i]
		}
		if first := times[i][0]; first.After(begin) {
			begin = first
		}
		if last := times[i][len(times[i])-1]; end.IsZero() || last.Before(end) {
			end = last
		}
	}
	tokens := 0
	for _, at := range times {
		for _, t := range at {
			if t.After(begin) && !t.After(end) {
				tokens++
			}
		}
	}
	return float64(tokens) / end.Sub(begin).Seconds(), nil
}

// decodeBatch is the tokens a second of n sequences that decode in one batch.
func (p *peer) decodeBatch(ids []int32, n int) (float64, error) {
	if err := p.in.Encode(map[string]any{"op": "batch", "ids": ids, "tokens": decodeTokens, "rows": n}); err != nil {
		return 0, err
	}
	a, err := p.read()
	return float64(n*decodeTokens) / a.Seconds, err
}
