package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/clademl/clade/core/compose"
)

// The model's context is 8192: the longest row leaves room for what it decodes.
var (
	lengthPrefills = []int{16, 128, 2048}
	lengthContexts = []int{16, 2048, 8000}
)

const (
	// pairedContext is the room of the models that are open beside one another.
	pairedContext = 1024
	pairedVocab   = 40000
)

// lengthRows measure clade alone over prompts and contexts of the small model, then what two settings of the composition
// change: products rounded to 8 bits, and deterministic mode.
func (o options) lengthRows(ctx context.Context) ([]Row, error) {
	rows, err := o.lengths(ctx)
	if err != nil {
		return nil, err
	}
	large := filepath.Join(o.root, "bin", "bench", shapes[0].name)
	if err := shapes[0].write(large); err != nil {
		return nil, err
	}
	threads := compose.Wishes{Threads: uint32(o.threads), Context: pairedContext}
	fast, free := threads, threads
	fast.Kernels, free.Deterministic = "fast", "false"
	for _, p := range []struct {
		name, path, what, peer string
		ours, theirs           compose.Wishes
	}{
		{modelName, o.model, "fast", "kernels=auto", fast, threads},
		{shapes[0].name, large, "fast", "kernels=auto", fast, threads},
		// Both run the same kernels: the order that they sum in is the only one there is.
		{modelName, o.model, "deterministic", "deterministic=false", threads, free},
	} {
		pair, err := o.settings(ctx, p.name, p.path, p.what, p.peer, p.ours, p.theirs)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", p.name, p.what, err)
		}
		rows = append(rows, pair...)
	}
	return rows, nil
}

func (o options) lengths(ctx context.Context) ([]Row, error) {
	clade, err := openClade(ctx, o.root, o.model, compose.Wishes{Threads: uint32(o.threads)})
	if err != nil {
		return nil, err
	}
	defer clade.close()
	var rows []Row
	for _, n := range lengthPrefills {
		var speed []float64
		for range o.repeats {
			d, err := clade.prefill(ctx, randomIDs(n, pairedVocab))
			if err != nil {
				return nil, err
			}
			speed = append(speed, float64(n)/d.Seconds())
		}
		rows = append(rows, single(fmt.Sprintf("%s/prefill%d", modelName, n), "tok/s", speed, "", ""))
	}
	for _, n := range lengthContexts {
		say("%s/decode@%d", modelName, n)
		speed, err := clade.windows(ctx, randomIDs(n, pairedVocab), o.repeats)
		if err != nil {
			return nil, err
		}
		rows = append(rows, single(fmt.Sprintf("%s/decode@%d", modelName, n), "tok/s", speed, "", ""))
	}
	return rows, nil
}

// settings measures one model open twice, prefill and decode, in turns.
func (o options) settings(ctx context.Context, name, path, what, peer string, ours, theirs compose.Wishes) ([]Row, error) {
	var open [2]*cladeEngine
	for i, w := range []compose.Wishes{ours, theirs} {
		c, err := openClade(ctx, o.root, path, w)
		if err != nil {
			return nil, err
		}
		defer c.close()
		if _, err := c.prefill(ctx, randomIDs(256, pairedVocab)); err != nil { // finds its pace
			return nil, err
		}
		open[i] = c
	}
	say("%s, %s: %s", name, what, open[0].describe())
	var prefill, decode [2][]float64
	for range o.repeats {
		for i, c := range open {
			d, err := c.prefill(ctx, randomIDs(prefillTokens, pairedVocab))
			if err != nil {
				return nil, err
			}
			prefill[i] = append(prefill[i], prefillTokens/d.Seconds())
			speed, err := c.windows(ctx, randomIDs(16, pairedVocab), 1)
			if err != nil {
				return nil, err
			}
			decode[i] = append(decode[i], speed[0])
		}
	}
	return []Row{
		paired(fmt.Sprintf("%s/prefill%d/%s", name, prefillTokens, what), "tok/s", peer, prefill[0], prefill[1], ""),
		paired(fmt.Sprintf("%s/decode@16/%s", name, what), "tok/s", peer, decode[0], decode[1], ""),
	}, nil
}
