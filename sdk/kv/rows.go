package kv

import "github.com/clademl/clade/sdk/mlx"

// rows keeps a row for each token and head, coded or not, in two buffers that grow, or that are rings where a window lets tokens
// be forgotten.
type rows struct {
	keyed
	slots   slots
	first   int          // the oldest position that is there, behind the pinned tile
	buffers []*mlx.Array // keys and values [1, Heads, slots, width], of a latent one; none until the first token
}

func newRows(p Spec, kernels bool) *rows {
	l := &rows{keyed: newKeyed(p, kernels), slots: p.ringOf()}
	if kernels && !mlx.AttendsCaches() {
		l.slots = slots{} // an older library's kernel takes buffers in order
	}
	return l
}

func (l *rows) arrays() []*mlx.Array { return l.buffers }

func (l *rows) close() {
	closeAll(l.buffers)
	l.buffers, l.first, l.coded = nil, 0, l.spec.Format.Start == 0
}

// begin makes room for tokens more behind offset, and goes over to the codes when it is time.
func (l *rows) begin(s *mlx.Scope, dtype mlx.DType, offset, tokens int) {
	if !l.computes(s, dtype, offset, tokens) {
		return
	}
	l.convert(s, offset)
	l.widen(s, offset, tokens)
	room := l.slots.capacity(offset + tokens)
	codes := l.codes()
	if l.buffers == nil {
		l.buffers = make([]*mlx.Array, len(codes))
	}
	for i, c := range codes {
		l.buffers[i] = grow(s, l.buffers[i], l.dims(c), l.dtype(c), room)
	}
	l.first = max(l.first, l.slots.oldest(offset+tokens))
}

func (l *rows) dims(c Code) []int {
	_, width := c.row(l.spec.HeadDim, l.compute)
	return []int{1, l.spec.Heads, 0, width}
}

func (l *rows) dtype(c Code) mlx.DType {
	dtype, _ := c.row(l.spec.HeadDim, l.compute)
	return dtype
}

// convert codes what was native until now, at exactly Start tokens. It is evaluated at once, so that no more than this layer is held
// twice, however many layers there are.
func (l *rows) convert(s *mlx.Scope, offset int) {
	if l.coded || offset < l.spec.Format.Start {
		return
	}
	l.coded = true
	if l.buffers == nil {
		return
	}
	coded := encodeAll(s, l.codes(), l.kernels, l.buffers...)
	if s.Eval(coded...) != nil {
		return // the scope has the error, and the cache is undefined
	}
	l.replace(s, coded)
}

// widen makes the ring larger for a forward of more tokens than Cut allows, whose first query would not see its window else.
func (l *rows) widen(s *mlx.Scope, offset, tokens int) {
	need := Capacity(l.spec.Window-1+tokens) / Step
	if l.slots.ring == 0 || need <= l.slots.ring {
		return
	}
	before := *l
	l.slots.ring = need
	if offset <= before.slots.most() || l.buffers == nil {
		return // nothing lies elsewhere in the larger one
	}
	room, oldest := l.slots.capacity(offset+tokens), max(l.first, before.slots.oldest(offset))
	for i, buffer := range l.buffers {
		dims := buffer.Shape()
		wide := s.Keep(s.Zeros([]int{dims[0], dims[1], room, dims[3]}, buffer.DType()))
		if l.slots.pinned > 0 {
			wide = write(s, wide, s.SliceAxis(buffer, 2, 0, Step), 0)
		}
		for _, p := range l.slots.spans(oldest, offset) {
			wide = write(s, wide, before.read(s, buffer, p.position, p.position+p.n), p.slot)
		}
		buffer.Close()
		l.buffers[i] = wide
	}
}

// replace takes other buffers for those it has.
func (l *rows) replace(s *mlx.Scope, buffers []*mlx.Array) {
	closeAll(l.buffers)
	l.buffers = keepAll(s, buffers)
}

func (l *rows) put(s *mlx.Scope, k, v *mlx.Array, offset int) {
	if k.NDim() != 4 {
		return // an earlier error left an inert array
	}
	n := k.Dim(2)
	l.begin(s, k.DType(), offset, n)
	rows := encodeAll(s, l.codes(), l.kernels, k, v)
	for _, p := range l.slots.spans(offset, offset+n) {
		from := p.position - offset
		for i, a := range rows {
			l.buffers[i] = write(s, l.buffers[i], s.SliceAxis(a, 2, from, from+p.n), p.slot)
		}
	}
}

func (l *rows) view(s *mlx.Scope, from, to int) (k, v *mlx.Array) {
	return l.decoded(s, func(i int) *mlx.Array { return l.read(s, l.buffers[i], from, to) })
}

// read is the rows of the positions [from, to).
func (l *rows) read(s *mlx.Scope, buffer *mlx.Array, from, to int) *mlx.Array {
	spans := l.slots.spans(from, to)
	out := make([]*mlx.Array, len(spans))
	for i, p := range spans {
		out[i] = s.SliceAxis(buffer, 2, p.slot, p.slot+p.n)
	}
	if len(out) == 1 {
		return out[0]
	}
	return s.Concat(2, out...)
}

func (l *rows) lend(s *mlx.Scope, dtype mlx.DType, offset, tokens int) mlx.CacheSequence {
	l.begin(s, dtype, offset, tokens)
	out := l.sequence(offset, tokens)
	out.Pairs = []mlx.CachePair{pair(l.buffers)}
	if l.form() != nativeForm || l.slots.ring > 0 || l.spec.Latent {
		out.Tiles = l.slots.table(offset + tokens)
	}
	return out
}

func (l *rows) giveBack(s *mlx.Scope, after []mlx.CachePair) {
	l.replace(s, unpaired(after[0]))
}

func (l *rows) take(s *mlx.Scope, from, to, offset int) (part, error) {
	lost, pinned, oldest := 0, l.slots.pinned*Step, max(l.first, l.slots.oldest(offset))
	switch {
	case from >= pinned:
		lost = max(0, oldest-from)
	case to > pinned && oldest > pinned: // it has a hole
		return part{}, nil
	}
	if from += lost; from >= to {
		return part{}, nil
	}
	var rows []*mlx.Array
	for _, b := range l.buffers {
		rows = append(rows, l.read(s, b, from, to))
	}
	p, err := takeAll(s, rows...)
	p.lost, p.form = lost, l.form()
	return p, err
}

func (l *rows) fill(s *mlx.Scope, sections []section, n int) {
	l.coded = n >= l.spec.Format.Start
	codes := l.codes()
	at, room := 0, l.slots.capacity(n+1)
	for _, c := range sections {
		m, gone := min(c.tokens, n-at), c.missing()
		if m <= 0 {
			break
		}
		from := max(at+gone, min(l.slots.oldest(n), at+m))
		if at < l.slots.pinned*Step {
			from = at + gone
		}
		if gone > 0 && at >= l.slots.pinned*Step {
			l.first = at + gone
		}
		if from < at+m {
			l.write(s, c, codes, room, from, from-at, m)
		}
		at += m
	}
	l.first = max(l.first, l.slots.oldest(n))
}

// write puts the tokens [from, to) of a section, the first at a position, into the buffers.
func (l *rows) write(s *mlx.Scope, c section, codes []Code, room, position, from, to int) {
	first := c.from + from - c.lost // of the part's rows
	if l.buffers == nil {
		l.buffers = make([]*mlx.Array, len(codes))
	}
	for i, code := range codes {
		rows := c.rows(s, i, first, first+to-from)
		if l.form() == codedForm && c.form == nativeForm {
			rows = code.encode(s, rows, l.kernels)
		}
		if rows.NDim() != 4 {
			return
		}
		l.buffers[i] = grow(s, l.buffers[i], rows.Shape(), rows.DType(), room)
		for _, p := range l.slots.spans(position, position+to-from) {
			at := p.position - position
			l.buffers[i] = write(s, l.buffers[i], s.SliceAxis(rows, 2, at, at+p.n), p.slot)
		}
	}
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

// write puts rows into a buffer that has room, from a slot on. The old buffer is released, so that MLX can write in place. The buffer
// never comes to share the rows' memory, as it would if all of it were written at once.
func write(s *mlx.Scope, buffer, rows *mlx.Array, slot int) *mlx.Array {
	if rows.NDim() != 4 {
		return buffer // an earlier error left an inert array
	}
	dims := rows.Shape()
	if n := dims[2]; n == buffer.Dim(2) {
		buffer = write(s, buffer, s.SliceAxis(rows, 2, 0, n/2), 0)
		return write(s, buffer, s.SliceAxis(rows, 2, n/2, n), n/2)
	}
	out := s.SliceUpdate(buffer, rows, []int{0, 0, slot, 0}, []int{dims[0], dims[1], slot + dims[2], dims[3]})
	buffer.Close()
	return s.Keep(out)
}

// grow gives buffer room slots, making it when it is nil. dims is its shape but for the slots.
func grow(s *mlx.Scope, buffer *mlx.Array, dims []int, dtype mlx.DType, room int) *mlx.Array {
	capacity := 0
	if buffer != nil {
		capacity = buffer.Dim(2)
	}
	if room <= capacity {
		return buffer
	}
	more := s.Zeros([]int{dims[0], dims[1], room - capacity, dims[3]}, dtype)
	if buffer == nil {
		return s.Keep(more)
	}
	grown := s.Concat(2, buffer, more)
	buffer.Close()
	return s.Keep(grown)
}
