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

// pagingRows measure the caches in blocks beside buffers of each row's own: memory of requests that begin alike, their decoding, and
// that of one alone.
func (o options) pagingRows(ctx context.Context) ([]Row, error) {
	var open [2]*cladeEngine
	for i, paging := range []string{"true", "false"} {
		w := compose.Wishes{Threads: uint32(o.threads), Rows: pagedRows, Paging: paging, PrefixCache: strconv.Itoa(256 << 20)}
		c, err := openClade(ctx, o.root, o.model, w)
		if err != nil {
			return nil, err
		}
		defer c.close()
		open[i] = c
	}
	prompt := randomIDs(pagedPrompt, pairedVocab)
	var memory, together, alone [2][]float64
	for i, c := range open {
		bytes, err := c.held(ctx, prompt)
		if err != nil {
			return nil, err
		}
		memory[i] = append(memory[i], bytes/1e6)
	}
	for range o.repeats {
		for i, c := range open { // from what is kept: only the decoding is of interest
			speed, err := c.decodeBatch(ctx, prompt, pagedRows)
			if err != nil {
				return nil, err
			}
			together[i] = append(together[i], speed)
			first, total, _, err := c.run(ctx, prompt, decodeTokens+1)
			if err != nil {
				return nil, err
			}
			alone[i] = append(alone[i], decodeTokens/(total-first).Seconds())
		}
	}
	name := func(what string) string { return fmt.Sprintf("%s/paging/%s", modelName, what) }
	rows := []Row{
		paired(name(fmt.Sprintf("memory of %d rows@%d", pagedRows, pagedPrompt)), "MB", "paging=false", memory[0], memory[1], ""),
		paired(name(fmt.Sprintf("decode batch%d@%d", pagedRows, pagedPrompt)), "tok/s", "paging=false", together[0], together[1], ""),
		paired(name(fmt.Sprintf("decode@%d", pagedPrompt)), "tok/s", "paging=false", alone[0], alone[1], ""),
	}
	rows[0].Note = "most that MLX held beyond the open model while requests that begin alike ran: their caches, what is kept of their beginning, and a step"
	return rows, nil
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
