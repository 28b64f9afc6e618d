package kv

import (
	"fmt"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
)

// Source is what the layers that attend to something beside the text, an encoder's output as a rule, keep of it: keys and values of a
// fixed number of positions, computed once. Rows of the same source hold the same one; it is freed when the last of them lets it go.
type Source struct {
	layers []SourceStates // by the cache's layers; empty where a layer attends to the text
	holds  int
}

// SourceStates are one layer's keys and values [1, Heads, positions, HeadDim].
type SourceStates struct{ Keys, Values *mlx.Array }

// NewSource evaluates the states of a source, one for each layer of specs that has one, in their order, and takes them over. Nobody
// holds it yet: Hold it, and Release it, on the worker's thread.
func NewSource(s *mlx.Scope, specs []Spec, states ...SourceStates) (*Source, error) {
	out, next := &Source{layers: make([]SourceStates, len(specs))}, 0
	var arrays []*mlx.Array
	for i, p := range specs {
		if p.Source == 0 {
			continue
		}
		if next == len(states) {
			return nil, fmt.Errorf("a source of %d layers, and layer %d has one", next, i)
		}
		st := states[next]
		next++
		for _, a := range []*mlx.Array{st.Keys, st.Values} {
			if d := a.Shape(); s.Err() == nil && (len(d) != 4 || d[2] < 1 || d[2] > p.Source || d[2] != st.Keys.Dim(2) || !slices.Equal(d, []int{1, p.Heads, d[2], p.HeadDim})) {
				return nil, fmt.Errorf("layer %d: states %v of a source of at most %d positions, %d heads of %d", i, d, p.Source, p.Heads, p.HeadDim)
			}
			arrays = append(arrays, a)
		}
		out.layers[i] = st
	}
	if next < len(states) {
		return nil, fmt.Errorf("a source of %d layers, and %d have one", len(states), next)
	}
	if err := s.Eval(arrays...); err != nil {
		return nil, err
	}
	keepAll(s, arrays)
	return out, nil
}

// Hold counts one more who has it.
func (c *Source) Hold() { c.holds++ }

// Release counts one less; the last one frees it.
func (c *Source) Release() {
	if c.holds--; c.holds > 0 {
		return
	}
	for _, l := range c.layers {
		l.Keys.Close()
		l.Values.Close()
	}
	c.layers = nil
}

// Freed reports whether the last one has let it go.
func (c *Source) Freed() bool { return c.layers == nil }

// SourceBytes is what the layer keeps of a source at most, whatever the tokens.
func (p Spec) SourceBytes(dtype mlx.DType) int64 {
	return 2 * int64(p.Heads) * int64(p.Source) * Code{}.bytes(p.HeadDim, dtype)
}

// HasSource reports whether a layer attends to a source: a cache wants one before its first token.
func HasSource(specs []Spec) bool {
	return slices.ContainsFunc(specs, func(p Spec) bool { return p.Source > 0 })
}

// Attach gives the cache its source, which it holds until it is closed.
func (c *Cache) Attach(source *Source) {
	source.Hold()
	c.detach()
	c.source = source
}

func (c *Cache) detach() {
	if c.source != nil {
		c.source.Release()
		c.source = nil
	}
}

// Source is the states that layer i attends to. They are the cache's, and never written.
func (c *Cache) Source(s *mlx.Scope, i int) SourceStates {
	if c.source != nil && i < len(c.source.layers) && c.source.layers[i].Keys != nil {
		return c.source.layers[i]
	}
	_ = s.Fail(fmt.Errorf("attend: layer %d has no source", i))
	inert := s.Zeros([]int{1}, mlx.Float32)
	return SourceStates{inert, inert}
}

// AttendSource takes the queries q [1, T, Heads * HeadDim] of layer i and returns the attention [1, T, Heads * HeadDim] of each over all
// of its own sequence's source: nothing rotates, and nothing is hidden. A graph with another order of operations takes Segments and
// Source.
func (p *Pass) AttendSource(s *mlx.Scope, i int, q *mlx.Array, heads int, scale float32) *mlx.Array {
	spec := p.segments[0].Cache.specs[i]
	if want := []int{1, p.tokens, heads * spec.HeadDim}; s.Err() == nil && !slices.Equal(q.Shape(), want) {
		_ = s.Fail(fmt.Errorf("attend: layer %d got queries %v, not %v", i, q.Shape(), want))
	}
	parts, first := make([]*mlx.Array, len(p.segments)), 0
	for j, g := range p.segments {
		states := g.Cache.Source(s, i)
		if s.Err() != nil {
			return q
		}
		own := s.Reshape(s.SliceAxis(q, 1, first, first+g.Tokens), 1, g.Tokens, heads, spec.HeadDim)
		o := s.SDPA(s.Transpose(own, 0, 2, 1, 3), states.Keys, states.Values, scale, mlx.Mask{}, nil)
		parts[j] = s.Reshape(s.Transpose(o, 0, 2, 1, 3), 1, g.Tokens, heads*spec.HeadDim)
		first += g.Tokens
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return s.Concat(1, parts...)
}

// beside is the storage of a layer that attends to a source: of tokens it keeps nothing, and a sequence can be gone on with from
// anywhere, by a cache with the same source. Whose runs are whose is their owner's to know.
type beside struct{}

func (beside) arrays() []*mlx.Array                         { return nil }
func (beside) take(*mlx.Scope, int, int, int) (part, error) { return part{}, nil }
func (beside) shapes(uint8, int, mlx.DType) ([]shape, bool) { return nil, false }
func (beside) usable(_ []section, n int) int                { return n }
func (beside) fill(*mlx.Scope, []section, int)              {}
func (beside) join(*mlx.Scope, []section) (part, error)     { return part{}, nil }
func (beside) close()                                       {}
