package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
)

// Run is a copy of what a cache holds of consecutive tokens, in every layer. It is its owner's: Close frees it.
type Run struct {
	layers []layer // [1, Heads, Tokens, HeadDim]
	tokens int
	bytes  int64
}

// Bytes the run takes.
func (r *Run) Bytes() int64 { return r.bytes }

// Tokens of the run.
func (r *Run) Tokens() int { return r.tokens }

// Close frees the copies, on the worker's thread.
func (r *Run) Close() {
	for _, l := range r.layers {
		l.keys.Close()
		l.values.Close()
	}
	r.layers = nil
}

// Copy takes the tokens [from, to) out of the cache. The copies share nothing with the cache's buffers, which the attention
// kernel writes in place.
func (c *Cache) Copy(s *mlx.Scope, from, to int) (_ *Run, err error) {
	if from < 0 || from >= to || to > c.offset {
		return nil, fmt.Errorf("copy tokens %d to %d of a cache that holds %d", from, to, c.offset)
	}
	r := &Run{layers: make([]layer, len(c.layers)), tokens: to - from}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	for i, l := range c.layers {
		if r.layers[i].keys, err = r.take(s, l.keys, from, to); err != nil {
			return nil, err
		}
		if r.layers[i].values, err = r.take(s, l.values, from, to); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *Run) take(s *mlx.Scope, buffer *mlx.Array, from, to int) (*mlx.Array, error) {
	part := s.SliceAxis(buffer, 2, from, to)
	data, err := mlx.Bytes(s, part)
	if err != nil {
		return nil, err
	}
	out := mlx.FromBytes(s, part.DType(), part.Shape(), data)
	if err := s.Err(); err != nil {
		return nil, err
	}
	r.bytes += int64(out.NBytes())
	return s.Keep(out), nil
}

// Piece is a part of a run: its tokens [From, From+Tokens).
type Piece struct {
	Run          *Run
	From, Tokens int
}

// Fill puts pieces into an empty cache, one behind the other, as if their tokens had been computed in it.
func (c *Cache) Fill(s *mlx.Scope, pieces []Piece) error {
	if c.offset != 0 || c.layers[0].keys != nil {
		return errors.New("fill: the cache is not empty")
	}
	total := 0
	for _, p := range pieces {
		if p.Run == nil || p.From < 0 || p.Tokens < 1 || p.From+p.Tokens > p.Run.tokens || len(p.Run.layers) != len(c.layers) {
			return fmt.Errorf("fill: tokens %d to %d of another cache's run", p.From, p.From+p.Tokens)
		}
		total += p.Tokens
	}
	if total == 0 {
		return nil
	}
	for i := range c.layers {
		keys, values := make([]*mlx.Array, 0, len(pieces)+1), make([]*mlx.Array, 0, len(pieces)+1)
		for _, p := range pieces {
			keys = append(keys, s.SliceAxis(p.Run.layers[i].keys, 2, p.From, p.From+p.Tokens))
			values = append(values, s.SliceAxis(p.Run.layers[i].values, 2, p.From, p.From+p.Tokens))
		}
		c.layers[i] = layer{keys: join(s, keys, total), values: join(s, values, total)}
	}
	c.offset = total
	return s.Eval(c.Arrays()...)
}

// join makes one buffer of parts with room behind them, never one that shares a part's memory.
func join(s *mlx.Scope, parts []*mlx.Array, total int) *mlx.Array {
	shape := parts[0].Shape()
	room := s.Zeros([]int{shape[0], shape[1], max(Capacity(total), total+1) - total, shape[3]}, parts[0].DType())
	return s.Keep(s.Concat(2, append(parts, room)...))
}

// Encode writes the run for a store. Decode reads it back.
func (r *Run) Encode(s *mlx.Scope) ([]byte, error) {
	out := binary.LittleEndian.AppendUint32(nil, uint32(r.tokens))
	out = slices.Grow(out, int(r.bytes)+len(r.layers)*16)
	for _, l := range r.layers {
		for _, a := range []*mlx.Array{l.keys, l.values} {
			data, err := mlx.Bytes(s, a)
			if err != nil {
				return nil, err
			}
			out = binary.LittleEndian.AppendUint32(out, uint32(len(data)))
			out = append(out, data...)
		}
	}
	return out, nil
}

// DecodeRun reads a run of a cache like c, whose compute dtype is dtype. What does not fit exactly is an error.
func (c *Cache) DecodeRun(s *mlx.Scope, dtype mlx.DType, data []byte) (_ *Run, err error) {
	number := func() int {
		if len(data) < 4 {
			data = nil
			return -1
		}
		n := binary.LittleEndian.Uint32(data)
		data = data[4:]
		return int(n)
	}
	r := &Run{tokens: number()}
	if r.tokens < 1 || r.tokens > Step {
		return nil, fmt.Errorf("a run of %d tokens", r.tokens)
	}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	for i, spec := range c.specs {
		r.layers = append(r.layers, layer{})
		for _, at := range []**mlx.Array{&r.layers[i].keys, &r.layers[i].values} {
			want := spec.Heads * r.tokens * spec.HeadDim * dtype.Size()
			if n := number(); n != want || len(data) < want {
				return nil, fmt.Errorf("layer %d has %d bytes of %d", i, n, want)
			}
			a := mlx.FromBytes(s, dtype, []int{1, spec.Heads, r.tokens, spec.HeadDim}, data[:want])
			if err := s.Err(); err != nil {
				return nil, err
			}
			*at = s.Keep(a)
			data, r.bytes = data[want:], r.bytes+int64(want)
		}
	}
	if len(data) != 0 {
		return nil, fmt.Errorf("%d bytes too many", len(data))
	}
	return r, nil
}
