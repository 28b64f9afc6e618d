package family

import "slices"

// fusedHeads are the head dims whose attention MLX computes without writing the scores down.
var fusedHeads = []int64{64, 72, 80, 96, 128}

// ScoreBytes is the largest score matrix that attention over a prefill chunk writes, in bytes: one layer's at a time, two
// bytes a score. heads is the number of query heads.
func (g Geometry) ScoreBytes(heads, chunk, context int64) int64 {
	queries := min(chunk, context)
	most := int64(0)
	for _, l := range g.Layers {
		if l.Kind == LinearLayer || slices.Contains(fusedHeads, l.KeyDim) {
			continue
		}
		keys := context
		if l.Kind == SlidingLayer {
			keys = min(context, l.Window+queries)
		}
		most = max(most, heads*queries*keys*halfBytes)
	}
	return most
}

// Experts are a mixture's counts; zero when the config is of a dense model.
func (p Parsed) Experts() (all, used int64, err error) {
	if p.Record == nil || p.Record.MoE == nil {
		return 0, 0, nil
	}
	m := p.Record.MoE
	if m.When != "" {
		on, _, err := p.Bool(m.When)
		if err != nil || !on {
			return 0, 0, err
		}
	}
	if all, _, err = p.Int(m.Experts); err != nil {
		return 0, 0, err
	}
	if used, _, err = p.Int(m.TopK); err != nil {
		return 0, 0, err
	}
	if all <= 0 || used <= 0 || used > all {
		return 0, 0, nil
	}
	return all, used, nil
}

// Paging says why a model's cache cannot be paged; empty when it can, under any scheme. Only full-attention layers of a family that
// declares it are paged.
func (p Parsed) Paging(KV) (why string, err error) {
	if p.Record == nil || !p.Record.Paging {
		return "the family does not page its cache", nil
	}
	g, err := p.Geometry()
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(g.Layers, func(l LayerCache) bool { return l.Kind == FullLayer && !l.Shared }) {
		return "no layer attends to all positions", nil
	}
	return "", nil
}
