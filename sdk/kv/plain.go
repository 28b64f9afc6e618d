package kv

import "github.com/clademl/clade/sdk/mlx"

// plain keeps every token's keys and values in the compute dtype, in buffers that grow.
type plain struct {
	spec         Spec
	keys, values *mlx.Array // [1, Heads, capacity, HeadDim]; nil until the first token
}

func (l *plain) arrays() []*mlx.Array {
	if l.keys == nil {
		return nil
	}
	return []*mlx.Array{l.keys, l.values}
}

func (l *plain) close() {
	l.keys.Close()
	l.values.Close()
	l.keys, l.values = nil, nil
}

func (l *plain) put(s *mlx.Scope, k, v *mlx.Array, offset int) {
	l.keys, l.values = put(s, l.keys, k, offset), put(s, l.values, v, offset)
}

func (l *plain) view(s *mlx.Scope, from, to int) (k, v *mlx.Array) {
	return s.SliceAxis(l.keys, 2, from, to), s.SliceAxis(l.values, 2, from, to)
}

func (l *plain) lend(s *mlx.Scope, dtype mlx.DType, offset, tokens int) mlx.PackedSequence {
	dims := []int{1, l.spec.Heads, 0, l.spec.HeadDim}
	l.keys, l.values = grow(s, l.keys, dims, dtype, offset+tokens), grow(s, l.values, dims, dtype, offset+tokens)
	return mlx.PackedSequence{Keys: l.keys, Values: l.values, Offset: offset, Tokens: tokens}
}

func (l *plain) giveBack(s *mlx.Scope, after mlx.PackedSequence) {
	l.close()
	l.keys, l.values = s.Keep(after.Keys), s.Keep(after.Values)
}

func (l *plain) take(s *mlx.Scope, from, to, _ int) (part, error) {
	return takeAll(s, s.SliceAxis(l.keys, 2, from, to), s.SliceAxis(l.values, 2, from, to))
}

func (l *plain) shapes(form uint8, tokens int, dtype mlx.DType) ([]shape, bool) {
	one := shape{dtype, []int{1, l.spec.Heads, tokens, l.spec.HeadDim}}
	return []shape{one, one}, form == 0
}

func (l *plain) usable(_ []section, n int) int { return n }

func (l *plain) fill(s *mlx.Scope, sections []section, n int) {
	l.keys, l.values = join(s, sections, 0, n), join(s, sections, 1, n)
}

// takeAll copies arrays into a part. The copies share nothing with the buffers they are slices of, which kernels write in place.
func takeAll(s *mlx.Scope, from ...*mlx.Array) (p part, err error) {
	for _, a := range from {
		data, err := mlx.Bytes(s, a)
		if err != nil {
			p.close()
			return part{}, err
		}
		p.arrays = append(p.arrays, s.Keep(mlx.FromBytes(s, a.DType(), a.Shape(), data)))
	}
	return p, nil
}

// join makes one buffer of the i-th arrays of the sections, cut at n tokens, with room behind them: never one that shares a part's
// memory.
func join(s *mlx.Scope, sections []section, i, n int) *mlx.Array {
	var rows []*mlx.Array
	held := 0
	for _, c := range sections {
		m := min(c.tokens, n-held)
		if m > 0 {
			rows = append(rows, s.SliceAxis(c.arrays[i], 2, c.from, c.from+m))
			held += m
		}
	}
	dims := rows[0].Shape()
	room := s.Zeros([]int{dims[0], dims[1], max(Capacity(n), n+1) - n, dims[3]}, rows[0].DType())
	return s.Keep(s.Concat(2, append(rows, room)...))
}

// put writes rows into buffer from offset on, growing it first when it is too short. The old buffer is released, so that MLX can
// write in place.
func put(s *mlx.Scope, buffer, rows *mlx.Array, offset int) *mlx.Array {
	if rows.NDim() != 4 {
		return buffer // an earlier error left an inert array
	}
	dims := rows.Shape()
	end := offset + dims[2]
	buffer = grow(s, buffer, dims, rows.DType(), end)
	out := s.SliceUpdate(buffer, rows, []int{0, 0, offset, 0}, []int{dims[0], dims[1], end, dims[3]})
	buffer.Close()
	return s.Keep(out)
}

// grow gives buffer room for end tokens, making it when it is nil. dims is its shape but for the tokens.
func grow(s *mlx.Scope, buffer *mlx.Array, dims []int, dtype mlx.DType, end int) *mlx.Array {
	capacity := 0
	if buffer != nil {
		capacity = buffer.Dim(2)
	}
	if end <= capacity {
		return buffer
	}
	room := s.Zeros([]int{dims[0], dims[1], Capacity(end) - capacity, dims[3]}, dtype)
	if buffer == nil {
		return s.Keep(room)
	}
	grown := s.Concat(2, buffer, room)
	buffer.Close()
	return s.Keep(grown)
}
