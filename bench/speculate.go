package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/clademl/clade/core/compose"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/core/loader"
)

// speculationTokens are decoded for a row: long enough for a draft to be found good or parked, and for what that costs to show.
const speculationTokens = 256

// recurring is a text that goes on as it went before, new one that does not.
const (
	recurring = "apple 1, banana 2, cherry 3, date 4, elderberry 5, fig 6, grape 7; apple 1, banana 2, cherry 3, date 4, elderberry 5, fig 6, grape 7; apple 1, banana 2,"
	newText   = "Once upon a time, in a harbour town that no map had kept,"
)

// speculationRows measure the same model with drafts and without, in turns: on a text that recurs, where drafts from the text pay; on
// one that does not; and with a draft that is always right and as dear as the model itself, which has to be found out.
func (o options) speculationRows(ctx context.Context) ([]Row, error) {
	var rows []Row
	for _, c := range []struct {
		name, draft, text string
		temperature       float64
		requests          int
		goal              string
	}{
		{"ngram/recurring-text", "ngram", recurring, 0, 1, "> 1 x"},
		{"ngram/new-text", "ngram", newText, 1.2, 1, ">= 0.97 x"},
		{"ngram/new-text@4", "ngram", newText, 1.2, 4, ">= 0.97 x"},
		{"two-model/itself", o.model, newText, 1.2, 1, ">= 0.97 x"},
	} {
		r, err := o.speculation(ctx, c.draft, c.text, c.temperature, c.requests)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		r.Name, r.Goal = modelName+"/decode/"+c.name, c.goal
		rows = append(rows, r)
	}
	return rows, nil
}

func (o options) speculation(ctx context.Context, draft, text string, temperature float64, requests int) (Row, error) {
	w := compose.Wishes{Threads: uint32(o.threads), Context: pairedContext, Rows: uint32(requests)}
	with, err := openWith(ctx, o.root, o.model, w, loader.Choices{Draft: loader.Draft{From: draft}})
	if err != nil {
		return Row{}, err
	}
	defer with.close()
	without, err := openClade(ctx, o.root, o.model, w)
	if err != nil {
		return Row{}, err
	}
	defer without.close()
	ids, err := with.model.Encode(text, true)
	if err != nil {
		return Row{}, err
	}
	var speed [2][]float64
	var usage *generate.Speculation
	for i := range o.repeats + 1 {
		var out [2][]int32
		for side, c := range []*cladeEngine{with, without} {
			tokens, answer, drafts, err := c.drafted(ctx, ids, temperature, uint64(i), requests)
			if err != nil {
				return Row{}, err
			}
			out[side] = answer
			if i > 0 { // the first pair warms up
				speed[side] = append(speed[side], tokens)
			}
			if drafts != nil {
				usage = drafts
			}
		}
		if !slices.Equal(out[0], out[1]) {
			return Row{}, fmt.Errorf("drafts change tokens: %v, not %v", out[0], out[1])
		}
	}
	r := paired("", "tok/s", "without drafts", speed[0], speed[1], "")
	r.Note = "nothing was drafted in the last answer"
	if usage != nil {
		r.Note = fmt.Sprintf("of one answer of %d tokens: %d drafted in %d forwards, %d accepted", speculationTokens, usage.Drafted, usage.Rounds, usage.Accepted)
	}
	return r, nil
}

// drafted decodes requests of one prompt, with seeds of their own, and returns the tokens a second of all from the last first token
// on, the first one's answer, and how its drafts did.
func (c *cladeEngine) drafted(ctx context.Context, ids []int32, temperature float64, seed uint64, requests int) (float64, []int32, *generate.Speculation, error) {
	type done struct {
		result       generate.Result
		first, ended time.Time
		err          error
	}
	all := make(chan done, requests)
	var answer done
	for i := range requests {
		go func() {
			var d done
			past, most, own := true, uint32(speculationTokens+1), seed*100+uint64(i)
			settings := generate.Settings{MaxTokens: &most, Temperature: &temperature, Seed: &own, IgnoreEOS: &past}
			d.result, d.err = c.model.Generate(ctx, generate.Prompt{IDs: ids}, settings, func(generate.Delta) error {
				if d.first.IsZero() {
					d.first = time.Now()
				}
				return nil
			})
			d.ended = time.Now()
			all <- d
		}()
	}
	var begin, end time.Time
	for range requests {
		d := <-all
		if d.err != nil {
			return 0, nil, nil, d.err
		}
		if d.first.After(begin) {
			begin = d.first
		}
		if d.ended.After(end) {
			end = d.ended
		}
		if answer.result.IDs == nil || slices.Compare(d.result.IDs, answer.result.IDs) < 0 { // the same one on both sides
			answer = d
		}
	}
	return float64(requests*speculationTokens) / end.Sub(begin).Seconds(), answer.result.IDs, answer.result.Usage.Speculation, nil
}
