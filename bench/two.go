package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/clademl/clade/core/compose"
)

// twoRows measure two open models that decode at once, as a server of both does: with the cores divided over them, and, as the
// other side, with each taking all of them.
func (o options) twoRows(ctx context.Context) ([]Row, error) {
	var models [2]*cladeEngine
	for i := range models {
		m, err := openClade(ctx, o.root, o.model, compose.Wishes{Threads: uint32(o.threads)})
		if err != nil {
			return nil, err
		}
		defer m.close()
		if err := sound(ctx, m, 0); err != nil {
			return nil, err
		}
		models[i] = m
	}
	both := func(threads int) (float64, error) {
		for _, m := range models {
			if err := m.model.Tune(ctx, threads); err != nil {
				return 0, err
			}
		}
		return decodeBoth(ctx, models)
	}
	share := max(1, int(o.threads)/len(models))
	var divided, whole []float64
	for i := range o.repeats + 1 {
		a, err := both(share)
		if err != nil {
			return nil, err
		}
		b, err := both(int(o.threads))
		if err != nil {
			return nil, err
		}
		if i > 0 { // the first pair warms up
			divided, whole = append(divided, a), append(whole, b)
		}
	}
	r := paired(modelName+"/decode/two-models", "tok/s", "each with all cores", divided, whole, ">= 1 x")
	r.Note = fmt.Sprintf("two models at once, tokens of both; %d threads each beside %d each", share, o.threads)
	return []Row{r}, nil
}

// decodeBoth is the tokens a second of both models together, from the first's start to the last's end.
func decodeBoth(ctx context.Context, models [2]*cladeEngine) (float64, error) {
	var wg sync.WaitGroup
	errs := make([]error, len(models))
	start := time.Now()
	for i, m := range models {
		wg.Go(func() { _, _, errs[i] = m.decode(ctx, question, decodeTokens) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return float64(len(models)*decodeTokens) / time.Since(start).Seconds(), nil
}
