package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
)

// Run is what a cache holds of consecutive tokens, in every layer: a copy, or the blocks of a pool. It is its owner's: Close frees it.
type Run struct {
	layers []part
	tokens int
	bytes  int64
}

// Bytes the run takes, or keeps from being free. A block counts whole, however few of its tokens are the run's.
func (r *Run) Bytes() int64 { return r.bytes }

// Tokens of the run.
func (r *Run) Tokens() int { return r.tokens }

// Close frees it, on the worker's thread.
func (r *Run) Close() {
	for _, p := range r.layers {
		p.close()
	}
	r.layers = nil
}

// add takes a part of the next layer in.
func (r *Run) add(p part) {
	r.layers, r.bytes = append(r.layers, p), r.bytes+p.bytes()
}

// Copy takes the tokens [from, to) out of the cache. What a layer has let go of them (a window's, or a state's but at the last
// token) is not in the run, which Usable knows. What the cache does later does not change the run.
func (c *Cache) Copy(s *mlx.Scope, from, to int) (_ *Run, err error) {
	if from < 0 || from >= to || to > c.offset {
		return nil, fmt.Errorf("copy tokens %d to %d of a cache that holds %d", from, to, c.offset)
	}
	r := &Run{tokens: to - from}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	for _, l := range c.layers {
		p, err := l.take(s, from, to, c.offset)
		if err != nil {
			return nil, err
		}
		r.add(p)
	}
	return r, s.Err()
}

// Piece is a part of a run: its tokens [From, From+Tokens). Pieces that lie one behind the other are of one text.
type Piece struct {
	Run          *Run
	From, Tokens int
}

// sections are the pieces as layer i sees them.
func sections(pieces []Piece, i int) []section {
	out := make([]section, len(pieces))
	for j, p := range pieces {
		out[j] = section{p.Run.layers[i], p.From, p.Tokens, p.Run.tokens}
	}
	return out
}

// check says whether the pieces are of caches like this one, and how many tokens they have.
func (c *Cache) check(pieces []Piece) (total int, err error) {
	for _, p := range pieces {
		if p.Run == nil || p.From < 0 || p.Tokens < 1 || p.From+p.Tokens > p.Run.tokens || len(p.Run.layers) != len(c.layers) {
			return 0, fmt.Errorf("fill: tokens %d to %d of another cache's run", p.From, p.From+p.Tokens)
		}
		total += p.Tokens
	}
	return total, nil
}

// Usable is the longest beginning of the pieces that Fill can make a cache of, and its tokens: all of them where every layer keeps
// every token, fewer where a layer forgets and no run ends where it could go on.
func (c *Cache) Usable(pieces []Piece) ([]Piece, int) {
	n, err := c.check(pieces)
	if err != nil {
		return nil, 0
	}
	for before := -1; before != n && n > 0; { // until no layer wants fewer
		before = n
		for i, l := range c.layers {
			n = max(0, l.usable(sections(pieces, i), n))
		}
	}
	out, left := []Piece(nil), n
	for _, p := range pieces {
		if p.Tokens = min(p.Tokens, left); p.Tokens > 0 {
			out, left = append(out, p), left-p.Tokens
		}
	}
	return out, n
}

// Fill puts pieces into an empty cache, one behind the other, as if their tokens had been computed in it. All of them must be
// Usable.
func (c *Cache) Fill(s *mlx.Scope, pieces []Piece) error {
	if c.offset != 0 || len(c.Arrays()) > 0 {
		return errors.New("fill: the cache is not empty")
	}
	total, err := c.check(pieces)
	if err != nil || total == 0 {
		return err
	}
	if _, n := c.Usable(pieces); n != total {
		return fmt.Errorf("fill: %d tokens, of which %d are usable", total, n)
	}
	for i, l := range c.layers {
		l.fill(s, sections(pieces, i), total)
	}
	c.offset = total
	return s.Eval(c.Arrays()...)
}

// Join makes one run of pieces, one behind the other. Of a layer that forgets it holds what the last piece does.
func (c *Cache) Join(s *mlx.Scope, pieces []Piece) (_ *Run, err error) {
	r := &Run{}
	if r.tokens, err = c.check(pieces); err != nil || r.tokens == 0 {
		return nil, fmt.Errorf("join %d pieces: %w", len(pieces), err)
	}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	for i, l := range c.layers {
		p, err := l.join(s, sections(pieces, i))
		if err != nil {
			return nil, err
		}
		r.add(p)
	}
	return r, s.Err()
}

// lastPart is the part of several sections of what has no row for every token: the last one's, if it reaches the end that it is of.
func lastPart(s *mlx.Scope, sections []section) (out part, err error) {
	last := sections[len(sections)-1]
	if last.from+last.tokens != last.of {
		return part{}, nil
	}
	out, err = takeAll(s, last.arrays...)
	out.form = last.form
	return out, err
}

// Encode writes the run for a store. DecodeRun reads it back.
func (r *Run) Encode(s *mlx.Scope) ([]byte, error) {
	out := binary.LittleEndian.AppendUint32(nil, uint32(r.tokens))
	out = slices.Grow(out, int(r.bytes)+len(r.layers)*16)
	for _, p := range r.layers {
		arrays := p.data(s, r.tokens)
		out = append(out, byte(len(arrays)), p.form)
		out = binary.LittleEndian.AppendUint16(out, uint16(p.lost))
		for _, a := range arrays {
			data, err := mlx.Bytes(s, a)
			if err != nil {
				return nil, err
			}
			out = append(out, data...)
		}
	}
	return out, nil
}

// DecodeRun reads a run of a cache like c, whose compute dtype is dtype. What does not fit exactly is an error.
func (c *Cache) DecodeRun(s *mlx.Scope, dtype mlx.DType, data []byte) (_ *Run, err error) {
	if len(data) < 4 {
		return nil, fmt.Errorf("a run of %d bytes", len(data))
	}
	r := &Run{}
	tokens := binary.LittleEndian.Uint32(data)
	if data = data[4:]; tokens < 1 || tokens > Step {
		return nil, fmt.Errorf("a run of %d tokens", tokens)
	}
	r.tokens = int(tokens)
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	for i, l := range c.layers {
		var p part
		if p, data, err = decodePart(s, l, r.tokens, dtype, data); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
		if l, ok := l.(adopting); ok {
			p = l.adopt(p, r.tokens)
		}
		r.add(p)
	}
	if len(data) != 0 {
		return nil, fmt.Errorf("%d bytes too many", len(data))
	}
	return r, nil
}

// decodePart reads one layer's part from the head of data.
func decodePart(s *mlx.Scope, l storage, tokens int, dtype mlx.DType, data []byte) (p part, rest []byte, err error) {
	if len(data) < 4 {
		return p, nil, errors.New("it ends early")
	}
	n := int(data[0])
	p.form, p.lost, data = data[1], int(binary.LittleEndian.Uint16(data[2:])), data[4:]
	if n == 0 {
		return part{}, data, nil
	}
	shapes, ok := l.shapes(p.form, tokens-p.lost, dtype)
	if !ok || n != len(shapes) || p.lost >= tokens {
		return part{}, nil, fmt.Errorf("%d arrays of form %d", n, p.form)
	}
	for _, want := range shapes {
		if len(data) < want.bytes() {
			p.close()
			return part{}, nil, fmt.Errorf("%d bytes of %d", len(data), want.bytes())
		}
		a := mlx.FromBytes(s, want.dtype, want.dims, data[:want.bytes()])
		if err := s.Err(); err != nil {
			p.close()
			return part{}, nil, err
		}
		p.arrays, data = append(p.arrays, s.Keep(a)), data[want.bytes():]
	}
	return p, data, nil
}
