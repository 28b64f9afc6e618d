package kv

import (
	"fmt"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/nn"
)

// Step is how many tokens a cache grows by.
const Step = 256

// Spec is what one layer keeps for each token.
type Spec struct {
	Heads, HeadDim int
	// Window is how many tokens back a query sees, itself included; 0 is all of them.
	Window int
}

// BytesPerToken is what one token takes in the layer's cache.
func (p Spec) BytesPerToken(dtype mlx.DType) int64 {
	return 2 * int64(p.Heads) * int64(p.HeadDim) * int64(dtype.Size())
}

// Capacity is the number of tokens that room is made for when a sequence holds n.
func Capacity(n int) int { return (n + Step - 1) / Step * Step }

// layer is one layer's buffers: nil until the first token.
type layer struct {
	keys, values *mlx.Array // [1, Heads, capacity, HeadDim]
}

// Cache is the keys and values of one sequence in every layer.
type Cache struct {
	specs   []Spec
	layers  []layer
	offset  int // tokens in every layer
	kernels bool
}

// New makes an empty cache. With kernels, attention over it is one kernel; else it is a graph of MLX's operations.
func New(specs []Spec, kernels bool) *Cache {
	return &Cache{specs: specs, layers: make([]layer, len(specs)), kernels: kernels}
}

// Offset is the number of tokens held: the position of the next one.
func (c *Cache) Offset() int { return c.offset }

// Close frees the buffers, on the worker's thread.
func (c *Cache) Close() {
	for i := range c.layers {
		c.layers[i].keys.Close()
		c.layers[i].values.Close()
		c.layers[i] = layer{}
	}
	c.offset = 0
}

// Arrays lists the buffers, for an evaluation that commits them.
func (c *Cache) Arrays() []*mlx.Array {
	var out []*mlx.Array
	for _, l := range c.layers {
		if l.keys != nil {
			out = append(out, l.keys, l.values)
		}
	}
	return out
}

// Pass is one forward of a sequence: new tokens at the positions from Offset on. Its masks are made once and shared by the
// layers with the same window.
type Pass struct {
	cache  *Cache
	tokens int
	masks  map[maskKey]mlx.Mask
}

// maskKey holds all that a mask depends on.
type maskKey struct{ queries, keys, window int }

// Begin starts a forward of n new tokens. End commits it.
func (c *Cache) Begin(n int) *Pass {
	return &Pass{cache: c, tokens: n, masks: map[maskKey]mlx.Mask{}}
}

// End moves the offset past the tokens of the pass.
func (p *Pass) End() { p.cache.offset += p.tokens }

// Offset is the position of the pass's first token.
func (p *Pass) Offset() int { return p.cache.offset }

// Attention is what one layer does with its projections.
type Attention struct {
	Heads int // of queries; the cache's Spec has those of keys and values
	Scale float32
	Rope  *nn.Rope // nil where positions do not rotate
}

// Attend takes the projections qkv [1, T, (Heads + 2 KVHeads) * HeadDim] of layer i: it rotates queries and keys, stores keys
// and values, and returns the attention [1, T, Heads * HeadDim] of each query over all that it may see.
func (p *Pass) Attend(s *mlx.Scope, i int, qkv *mlx.Array, a Attention) *mlx.Array {
	spec, l := p.cache.specs[i], &p.cache.layers[i]
	if want := []int{1, p.tokens, (a.Heads + 2*spec.Heads) * spec.HeadDim}; s.Err() == nil && !slices.Equal(qkv.Shape(), want) {
		_ = s.Fail(fmt.Errorf("attend: layer %d got projections %v, not %v", i, qkv.Shape(), want))
	}
	if p.cache.kernels {
		return p.attendPacked(s, spec, l, qkv, a)
	}
	q := split(s, qkv, 0, a.Heads, spec.HeadDim)                     // [1, Hq, T, D]
	k := split(s, qkv, a.Heads, spec.Heads, spec.HeadDim)            // [1, Hkv, T, D]
	v := split(s, qkv, a.Heads+spec.Heads, spec.Heads, spec.HeadDim) // [1, Hkv, T, D]
	if a.Rope != nil {
		q, k = a.Rope.Forward(s, q, p.Offset()), a.Rope.Forward(s, k, p.Offset())
	}
	end := p.cache.offset + p.tokens
	l.keys = put(s, l.keys, k, p.cache.offset, end)
	l.values = put(s, l.values, v, p.cache.offset, end)

	first := 0 // the oldest key that any query of the pass sees
	if spec.Window > 0 {
		first = max(0, p.cache.offset-spec.Window+1)
	}
	keys, values := s.SliceAxis(l.keys, 2, first, end), s.SliceAxis(l.values, 2, first, end)
	o := s.SDPA(q, keys, values, a.Scale, p.mask(s, end-first, spec.Window), nil)
	return s.Reshape(s.Transpose(o, 0, 2, 1, 3), 1, -1, a.Heads*spec.HeadDim)
}

// split maps the n heads of x [1, T, all*D] that begin at head first to [1, n, T, D].
func split(s *mlx.Scope, x *mlx.Array, first, n, dim int) *mlx.Array {
	x = s.SliceAxis(x, -1, first*dim, (first+n)*dim)
	return s.Transpose(s.Reshape(x, 1, -1, n, dim), 0, 2, 1, 3)
}

// attendPacked is Attend as one kernel, which writes the caches in place: their handles are replaced by those it returns.
func (p *Pass) attendPacked(s *mlx.Scope, spec Spec, l *layer, qkv *mlx.Array, a Attention) *mlx.Array {
	shape := []int{1, spec.Heads, 0, spec.HeadDim}
	end := p.cache.offset + p.tokens
	l.keys, l.values = grow(s, l.keys, shape, qkv.DType(), end), grow(s, l.values, shape, qkv.DType(), end)
	args := mlx.PackedAttention{
		Heads: a.Heads, KVHeads: spec.Heads, HeadDim: spec.HeadDim, RopeScale: 1, RopeMScale: 1,
		Scale: a.Scale, Offset: p.cache.offset, Window: spec.Window,
	}
	if a.Rope != nil {
		a.Rope.Kernel(&args)
	}
	out, keys, values := s.PackedAttend(qkv, l.keys, l.values, args)
	l.keys.Close()
	l.values.Close()
	l.keys, l.values = s.Keep(keys), s.Keep(values)
	return out
}

// put writes rows into buffer at [offset, end), growing it first when it is too short. The old buffer is released, so
// that MLX can write in place.
func put(s *mlx.Scope, buffer, rows *mlx.Array, offset, end int) *mlx.Array {
	if rows.NDim() != 4 {
		return buffer // an earlier error left an inert array
	}
	shape := rows.Shape()
	buffer = grow(s, buffer, shape, rows.DType(), end)
	out := s.SliceUpdate(buffer, rows, []int{0, 0, offset, 0}, []int{shape[0], shape[1], end, shape[3]})
	buffer.Close()
	return s.Keep(out)
}

// grow gives buffer room for end tokens, making it when it is nil. shape is its shape but for the tokens.
func grow(s *mlx.Scope, buffer *mlx.Array, shape []int, dtype mlx.DType, end int) *mlx.Array {
	capacity := 0
	if buffer != nil {
		capacity = buffer.Dim(2)
	}
	if end <= capacity {
		return buffer
	}
	room := s.Zeros([]int{shape[0], shape[1], Capacity(end) - capacity, shape[3]}, dtype)
	if buffer == nil {
		return s.Keep(room)
	}
	grown := s.Concat(2, buffer, room)
	buffer.Close()
	return s.Keep(grown)
}

// mask is what T queries at the end of keys may see: everything for one query, causal, or causal within a window.
func (p *Pass) mask(s *mlx.Scope, keys, window int) mlx.Mask {
	if p.tokens == 1 {
		return mlx.Mask{} // Attend cut the keys to the window
	}
	if window == 0 || keys <= window {
		return mlx.Causal()
	}
	key := maskKey{p.tokens, keys, window}
	if m, ok := p.masks[key]; ok {
		return m
	}
	rows := s.ExpandDims(s.Arange(float64(keys-p.tokens), float64(keys), 1, mlx.Int32), 1) // [T, 1]
	cols := s.ExpandDims(s.Arange(0, float64(keys), 1, mlx.Int32), 0)                      // [1, keys]
	seen := s.LogicalAnd(s.GreaterEqual(rows, cols), s.Less(rows, s.Add(cols, s.Scalar(float64(window), mlx.Int32))))
	m := mlx.ArrayMask(seen)
	p.masks[key] = m
	return m
}
