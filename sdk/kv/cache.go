package kv

import "github.com/clademl/clade/sdk/mlx"

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
