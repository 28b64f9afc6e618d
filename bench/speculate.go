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

// shortTokens are those of a short answer, in which a trial weighs most.
const shortTokens = 64

// recurring is a text that goes on as it went before, new one that does not.
const (
	recurring = "apple 1, banana 2, cherry 3, date 4, elderberry 5, fig 6, grape 7; apple 1, banana 2, cherry 3, date 4, elderberry 5, fig 6, grape 7; apple 1, banana 2,"
	newText   = "Once upon a time, in a harbour town that no map had kept,"
)

// drafting is a model open with a draft, and what both are asked.
type drafting struct {
	name, model, draft string
	ids                []int32 // or else text
	text               string
	temperature        float64
	requests, tokens   int
	goal               string
}

// speculationRows measure the same model with drafts and without, in turns: on a text that recurs, where drafts from the text pay; on
// one that does not; with a draft that is always right and as dear as the model itself; with a small one that is mostly right, and with
// one that is not.
func (o options) speculationRows(ctx context.Context) ([]Row, error) {
	var dirs [3]string
	for i, l := range []layered{deep, firstLayer, stranger} {
		var err error
		if dirs[i], err = l.in(o.root); err != nil {
			return nil, err
		}
	}
	ids, never := randomIDs(40, deep.vocab), ">= 0.97 x"
	var rows []Row
	for _, c := range []drafting{
		{modelName + "/decode/ngram/recurring-text", o.model, "ngram", nil, recurring, 0, 1, speculationTokens, ">= 2 x"},
		{modelName + "/decode/ngram/new-text", o.model, "ngram", nil, newText, 1.2, 1, speculationTokens, never},
		{modelName + "/decode/ngram/new-text@4", o.model, "ngram", nil, newText, 1.2, 4, speculationTokens, never},
		{modelName + "/decode/ngram/new-text@8", o.model, "ngram", nil, newText, 1.2, 8, speculationTokens / 2, never},
		{modelName + "/decode/two-model/itself", o.model, o.model, nil, newText, 1.2, 1, speculationTokens, never},
		{deep.name + "/decode/two-model/first-layer", dirs[0], dirs[1], ids, "", 0.1, 1, speculationTokens / 2, "> 1 x"},
		{deep.name + "/decode/two-model/stranger", dirs[0], dirs[2], ids, "", 0.1, 1, speculationTokens / 2, never},
		{deep.name + "/decode/two-model/stranger/short", dirs[0], dirs[2], ids, "", 0.1, 1, shortTokens, never},
	} {
		r, err := o.speculation(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (o options) speculation(ctx context.Context, c drafting) (Row, error) {
	w := compose.Wishes{Threads: uint32(o.threads), Context: pairedContext, Rows: uint32(c.requests)}
	with, err := openWith(ctx, o.root, c.model, w, loader.Choices{Draft: loader.Draft{From: c.draft}})
	if err != nil {
		return Row{}, err
	}
	defer with.close()
	without, err := openClade(ctx, o.root, c.model, w)
	if err != nil {
		return Row{}, err
	}
	defer without.close()
	if c.ids == nil {
		if c.ids, err = with.model.Encode(c.text, true); err != nil {
			return Row{}, err
		}
	}
	var speed [2][]float64
	var usage *generate.Speculation
	for i := range o.repeats + 1 {
		var out [2][]int32
		for turn := range 2 {
			side := (turn + i) % 2 // each goes first as often as the other
			tokens, answer, drafts, err := []*cladeEngine{with, without}[side].drafted(ctx, c, uint64(i))
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
	r := paired(c.name, "tok/s", "without drafts", speed[0], speed[1], c.goal)
	r.Note = "nothing was drafted in the last answer"
	if usage != nil {
		r.Note = fmt.Sprintf("of one answer of %d tokens: %d drafted in %d forwards, %d accepted", c.tokens, usage.Drafted, usage.Rounds, usage.Accepted)
		if usage.Parked != "" {
			r.Note += "; parked: " + usage.Parked
		}
	}
	return r, nil
}

// drafted decodes requests of one prompt, with seeds of their own, and returns the tokens a second of all from the last first token
// on, the first one's answer, and how its drafts did.
func (c *cladeEngine) drafted(ctx context.Context, a drafting, seed uint64) (float64, []int32, *generate.Speculation, error) {
	type done struct {
		result       generate.Result
		first, ended time.Time
		err          error
	}
	all := make(chan done, a.requests)
	var answer done
	for i := range a.requests {
		go func() {
			var d done
			past, most, own := true, uint32(a.tokens+1), seed*100+uint64(i)
			settings := generate.Settings{MaxTokens: &most, Temperature: &a.temperature, Seed: &own, IgnoreEOS: &past}
			d.result, d.err = c.model.Generate(ctx, generate.Prompt{IDs: a.ids}, settings, func(generate.Delta) error {
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
	for range a.requests {
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
	return float64(a.requests*a.tokens) / end.Sub(begin).Seconds(), answer.result.IDs, answer.result.Usage.Speculation, nil
}
