package kv

import (
	"fmt"

	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// Cache is what one sequence has left in every layer.
type Cache struct {
	specs   []Spec
	layers  []storage
	offset  int // tokens in every layer
	kernels bool
	board   *nn.Board // of the sequence's model; nil: none
	stack   nn.Stack
	source  *Source // nil: none
}

// Adapt says which adapters the sequence has; a Pass tells the model's board. It is for the time before the first token.
func (c *Cache) Adapt(board *nn.Board, stack nn.Stack) { c.board, c.stack = board, stack }

// New makes an empty cache with buffers of its own. With kernels, attention over it is one kernel; else it is a graph of MLX's
// operations. Caches that share blocks are made by a Pool.
func New(specs []Spec, kernels bool) *Cache { return (*Pool)(nil).Cache(specs, kernels) }

// Offset is the number of tokens held: the position of the next one.
func (c *Cache) Offset() int { return c.offset }

// Ends reports whether a copy that ends behind n tokens can be gone on with, also where layers forget.
func (c *Cache) Ends(n int) bool {
	for i, l := range c.layers {
		if l, ok := l.(*state); ok && l.at(n, c.offset) == nil || n != c.offset && c.specs[i].slots() > 0 {
			return false
		}
	}
	return n > 0 && n <= c.offset
}

// Mark makes the present offset one that Rewind can return to, until tokens are added behind another Mark. Keys and values need
// nothing for it; a state that every token changes is kept as it is now.
func (c *Cache) Mark() {
	for _, l := range c.layers {
		if l, ok := l.(returning); ok {
			l.mark(c.offset)
		}
	}
}

// Rewind forgets the tokens behind the first n, which must not be fewer than at the last Mark. It returns how many are held now:
// n, or, where a layer's state can only go back to what was kept of it, as many as at that Mark; the rest is to be computed again.
func (c *Cache) Rewind(n int) int {
	n = min(c.offset, n)
	held := n
	for _, l := range c.layers {
		if l, ok := l.(returning); ok {
			held = min(held, l.rewind(n, c.offset))
		}
	}
	c.offset = held
	return held
}

// Close frees the buffers, on the worker's thread.
func (c *Cache) Close() {
	for _, l := range c.layers {
		l.close()
	}
	c.detach()
	c.offset = 0
}

// Arrays lists the buffers, for an evaluation that commits them.
func (c *Cache) Arrays() []*mlx.Array {
	var out []*mlx.Array
	for _, l := range c.layers {
		out = append(out, l.arrays()...)
	}
	return out
}

// attended is layer i's storage, for attention. A graph that attends over a layer that keeps no keys is told so.
func (c *Cache) attended(s *mlx.Scope, i int) attended {
	if l, ok := c.layers[i].(attended); ok {
		return l
	}
	_ = s.Fail(fmt.Errorf("attend: layer %d keeps no keys and values", i))
	return newRows(c.specs[i], c.kernels)
}
