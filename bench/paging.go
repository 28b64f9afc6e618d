package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/clademl/clade/core/compose"
)

const (
	// pagedRows requests that begin alike, in as many blocks as the caches of all rows have.
	pagedRows = 8
	// pagedPrompt leaves what is decoded behind it within the eighth block.
	pagedPrompt = 1980
)

// pagedAlone are the prompts of a row that nobody shares anything with.
var pagedAlone = []int{200, pagedPrompt}

// pagingRows measure the caches in blocks beside buffers of each row's own: memory of requests that begin alike, their decoding, and
// that of one alone. Two processes of one setting differ too: a third one, as plain as the second, shows how much.
func (o options) pagingRows(ctx context.Context) ([]Row, error) {
	var open [3]*cladeEngine
	for i, paging := range []string{"true", "false", "false"} {
		w := compose.Wishes{Threads: uint32(o.threads), Rows: pagedRows, Paging: paging, PrefixCache: strconv.Itoa(256 << 20)}
		c, err := openClade(ctx, o.root, o.model, w)
		if err != nil {
			return nil, err
		}
		defer c.close()
		open[i] = c
	}
	prompt := randomIDs(pagedPrompt, pairedVocab)
	var memory [3][]float64
	for i, c := range open {
		bytes, err := c.held(ctx, prompt)
		if err != nil {
			return nil, err
		}
		memory[i] = append(memory[i], bytes/1e6)
	}
	together, err := o.inTurns(open[:], func(c *cladeEngine) (float64, error) { return c.decodeBatch(ctx, prompt, pagedRows) })
	if err != nil {
		return nil, err
	}
	name := func(what string, n int) string { return fmt.Sprintf("%s/paging/%s@%d", modelName, what, n) }
	batch, twin := fmt.Sprintf("decode batch%d", pagedRows), "paging=false, another process"
	rows := []Row{
		paired(name(fmt.Sprintf("memory of %d rows", pagedRows), pagedPrompt), "MB", "paging=false", memory[0], memory[1], ""),
		paired(name(batch, pagedPrompt), "tok/s", "paging=false", together[0], together[1], ""),
		paired(name(batch+" alike", pagedPrompt), "tok/s", twin, together[2], together[1], ""),
	}
	rows[0].Note = "most that MLX held beyond the open model while requests that begin alike ran: their caches, what is kept of their beginning, and a step"
	for _, n := range pagedAlone {
		alone, err := o.inTurns(open[:], func(c *cladeEngine) (float64, error) { // behind what is kept: only the decoding is of interest
			first, total, _, err := c.run(ctx, prompt[:n], decodeTokens+1)
			return decodeTokens / (total - first).Seconds(), err
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows,
			paired(name("decode", n), "tok/s", "paging=false", alone[0], alone[1], ""),
			paired(name("decode alike", n), "tok/s", twin, alone[2], alone[1], ""))
	}
	return rows, nil
}

// inTurns measures each engine once a repeat; which is the first goes round.
func (o options) inTurns(open []*cladeEngine, measure func(*cladeEngine) (float64, error)) ([][]float64, error) {
	out := make([][]float64, len(open))
	for k := range o.repeats {
		for j := range open {
			i := (j + k) % len(open)
			v, err := measure(open[i])
			if err != nil {
				return nil, err
			}
			out[i] = append(out[i], v)
		}
	}
	return out, nil
}

// held is the most bytes that MLX holds, beyond what it does now, while requests of one prompt run. The first computes the prompt, so
// that no prefill of several is measured.
func (c *cladeEngine) held(ctx context.Context, prompt []int32) (float64, error) {
	before, err := c.model.Stats(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := c.prefill(ctx, prompt); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := c.decodeBatch(ctx, prompt, pagedRows)
		ended <- err
	}()
	most := uint64(0)
	for {
		select {
		case err := <-ended:
			return float64(most - before.GetMemory().GetActiveBytes()), err
		case <-time.After(50 * time.Millisecond):
		}
		s, err := c.model.Stats(ctx)
		if err != nil {
			return 0, err
		}
		if s.GetActiveRequests() == pagedRows {
			most = max(most, s.GetMemory().GetActiveBytes())
		}
	}
}
