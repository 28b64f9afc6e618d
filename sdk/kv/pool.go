package kv

import (
	"fmt"

	"github.com/clademl/clade/sdk/mlx"
)

// Pool is what the caches of one model keep layers in that attend to all positions: blocks of Step tokens, of which each cache has a
// table. Caches and runs that hold the same beginning hold the same blocks. A block that more than one of them has is never written:
// who goes on in it copies it before. The caches of a pool and their runs belong to one worker's thread.
type Pool struct {
	most   int
	layers []*layerPool
	last   uint64 // number of a block
}

// layerPool is one layer's blocks.
type layerPool struct {
	pool *Pool
	used int // blocks in the tables of caches
}

// NewPool makes a pool of which caches never hold more than so many blocks of a layer, one that several have counted once. What runs
// hold beside is their owner's to count.
func NewPool(most int) *Pool { return &Pool{most: most} }

// Cache makes an empty cache of the pool; a nil pool makes one that has its buffers for itself. All caches of a pool have the same
// specs.
func (p *Pool) Cache(specs []Spec, kernels bool) *Cache {
	c := &Cache{specs: specs, layers: make([]storage, len(specs)), kernels: kernels}
	for i, spec := range specs {
		if p != nil && spec.pages() {
			c.layers[i] = &pages{keyed: newKeyed(spec, kernels), blocks: p.layer(i)}
		} else {
			c.layers[i] = spec.storage(kernels)
		}
	}
	return c
}

func (p *Pool) layer(i int) *layerPool {
	for len(p.layers) <= i {
		p.layers = append(p.layers, &layerPool{pool: p})
	}
	return p.layers[i]
}

// Used is the blocks that caches hold, of the layer with the most.
func (p *Pool) Used() int {
	most := 0
	for _, l := range p.layers {
		most = max(most, l.used)
	}
	return most
}

// pages reports whether the layer can be kept in a pool's blocks.
func (p Spec) pages() bool { return len(p.State) == 0 && p.Source == 0 && p.Window == 0 && p.Heads > 0 }

// Paged is how many of the layers a pool keeps in blocks.
func Paged(specs []Spec) int {
	n := 0
	for _, p := range specs {
		if p.pages() {
			n++
		}
	}
	return n
}

// Whole are the numbers of the blocks that are full with the cache's first tokens, in one of its layers: all layers share alike. None
// while the blocks may still be exchanged, because the cache is to go over to its codes.
func (c *Cache) Whole() []uint64 {
	for _, l := range c.layers {
		if l, ok := l.(*pages); ok && l.coded {
			return numbers(l.table[:min(len(l.table), c.offset/Step)])
		}
	}
	return nil
}

// Begins is Whole of the cache that Fill would make of usable pieces.
func (c *Cache) Begins(pieces []Piece) []uint64 {
	n := 0
	for _, p := range pieces {
		n += p.Tokens
	}
	for i, l := range c.layers {
		l, ok := l.(*pages)
		if !ok || n < l.spec.Format.Start {
			continue
		}
		var table []*block
		for t := range n / Step {
			b := l.shared(within(sections(pieces, i), t*Step, (t+1)*Step))
			if b == nil || !b.coded {
				break
			}
			table = append(table, b)
		}
		return numbers(table)
	}
	return nil
}

func numbers(table []*block) []uint64 {
	var out []uint64
	for _, b := range table {
		out = append(out, b.number)
	}
	return out
}

// block is the keys and values of Step tokens in one layer, from a multiple of Step on.
type block struct {
	rows         []*mlx.Array // keys and values [1, Heads, Step, width]; a latent's are one
	coded        bool         // they have the format's codes
	of           *layerPool
	number       uint64
	tables, runs int // of which it is a part
}

// block makes one that nobody has yet.
func (l *layerPool) block(rows []*mlx.Array, coded bool) *block {
	l.pool.last++
	return &block{rows: rows, coded: coded, of: l, number: l.pool.last}
}

// shared reports whether somebody else has it: it must not be written.
func (b *block) shared() bool { return b.tables+b.runs > 1 }

// enter counts a table that has the block.
func (b *block) enter(s *mlx.Scope) {
	if b.tables++; b.tables > 1 {
		return
	}
	if b.of.used++; b.of.used > b.of.pool.most && s.Err() == nil {
		_ = s.Fail(fmt.Errorf("a cache takes another block, and all %d are in use", b.of.pool.most))
	}
}

// leave takes it out of a table.
func (b *block) leave() {
	if b.tables--; b.tables == 0 {
		b.of.used--
	}
	b.free()
}

// drop takes it out of a run.
func (b *block) drop() {
	b.runs--
	b.free()
}

func (b *block) free() {
	if b.tables+b.runs == 0 {
		closeAll(b.rows)
	}
}

// replace takes other arrays for those it has.
func (b *block) replace(s *mlx.Scope, rows []*mlx.Array) {
	closeAll(b.rows)
	b.rows = keepAll(s, rows)
}

func keepAll(s *mlx.Scope, arrays []*mlx.Array) []*mlx.Array {
	for _, a := range arrays {
		s.Keep(a)
	}
	return arrays
}

// pair is rows as a kernel takes them, which knows those of a latent by its call.
func pair(rows []*mlx.Array) mlx.CachePair {
	if len(rows) == 1 {
		return mlx.CachePair{Keys: rows[0]}
	}
	return mlx.CachePair{Keys: rows[0], Values: rows[1]}
}

// unpaired are rows that a kernel gave back.
func unpaired(p mlx.CachePair) []*mlx.Array {
	if p.Values == nil {
		return []*mlx.Array{p.Keys}
	}
	return []*mlx.Array{p.Keys, p.Values}
}

func (b *block) bytes() int64 {
	n := int64(0)
	for _, a := range b.rows {
		n += int64(a.NBytes())
	}
	return n
}
