package kv

import "github.com/clademl/clade/sdk/mlx"

// Whole reports whether Decode computes the pass: a step of few rows without adapters, whose caches the kernels attend to, alike in all
// layers and with one base of rotation.
func (p *Pass) Whole(a Attention) bool {
	if !mlx.Decodes() || p.tokens > mlx.DecoderRows || len(p.segments) > 1 && p.grows(a.Rope) || a.Softcap != 0 {
		return false
	}
	for _, g := range p.segments {
		first := g.Cache.specs[0]
		if !a.packs(g.Cache, first) || len(g.Cache.stack) > 0 {
			return false
		}
		for _, spec := range g.Cache.specs {
			if spec.Window != first.Window || spec.Keep != first.Keep || spec.Latent {
				return false
			}
		}
	}
	return true
}

// Decode takes x [1, T, hidden] through all layers of a decoder, which attend as a says, as one kernel: it writes the caches of every
// layer in place. The pass must be Whole.
func (p *Pass) Decode(s *mlx.Scope, d *mlx.Decoder, x *mlx.Array, a Attention) *mlx.Array {
	spec := p.segments[0].Cache.specs[0]
	storages, lent := make([][]attended, d.Layers), make([][]mlx.CacheSequence, d.Layers)
	for i := range lent {
		for _, g := range p.segments {
			l := g.Cache.attended(s, i)
			q := l.lend(s, x.DType(), g.Cache.offset, g.Tokens)
			if q.Tiles == nil {
				q.Tiles = slots{}.table(q.Offset + q.Tokens)
			}
			storages[i], lent[i] = append(storages[i], l), append(lent[i], q)
		}
	}
	if s.Err() != nil {
		return x
	}
	out, after := s.Decode(d, x, lent, spec.Keep, a.packed(s, spec, lent[0][0].Offset+lent[0][0].Tokens))
	for i, layer := range storages {
		for j, l := range layer {
			l.giveBack(s, after[i][j])
		}
	}
	return out
}
