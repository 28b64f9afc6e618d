package kv

import "github.com/clademl/clade/sdk/mlx"

// pages keeps a row for each token and head, as rows does, in the blocks of a pool. It is for layers that attend to all positions.
type pages struct {
	keyed
	blocks *layerPool
	table  []*block
}

func (l *pages) arrays() []*mlx.Array {
	var out []*mlx.Array
	for _, b := range l.table {
		out = append(out, b.rows...)
	}
	return out
}

func (l *pages) close() {
	l.cut(0)
	l.coded = l.spec.Format.Start == 0
}

// cut gives back the blocks behind the first n.
func (l *pages) cut(n int) {
	for _, b := range l.table[n:] {
		b.leave()
	}
	clear(l.table[n:])
	l.table = l.table[:n]
}

// mark needs nothing: what is behind a token can be forgotten at any time.
func (l *pages) mark(int) {}

// rewind gives back the blocks of which no token is left.
func (l *pages) rewind(n, _ int) int {
	if used := Capacity(n) / Step; used < len(l.table) {
		l.cut(used)
	}
	return n
}

// begin makes room for tokens more behind offset, in blocks that nobody else has, and goes over to the codes when it is time.
func (l *pages) begin(s *mlx.Scope, dtype mlx.DType, offset, tokens int) {
	if !l.computes(s, dtype, offset, tokens) {
		return
	}
	l.convert(s, offset)
	for t := offset / Step; t < (offset+tokens+Step-1)/Step; t++ {
		switch {
		case t == len(l.table):
			l.place(s, t, l.empty(s))
		case l.table[t].shared():
			l.own(s, t, max(0, offset-t*Step))
		}
	}
}

// place makes b the block of a tile, in the place of the one that is there.
func (l *pages) place(s *mlx.Scope, t int, b *block) {
	if t < len(l.table) {
		l.table[t].leave()
		l.table[t] = b
	} else {
		l.table = append(l.table, b)
	}
	b.enter(s)
}

// empty is a new block of zeros.
func (l *pages) empty(s *mlx.Scope) *block {
	var made []*mlx.Array
	for _, c := range l.codes() {
		dtype, width := c.row(l.spec.HeadDim, l.compute)
		made = append(made, s.Keep(s.Zeros([]int{1, l.spec.Heads, Step, width}, dtype)))
	}
	return l.blocks.block(made, l.coded)
}

// own copies the first n rows of a tile's block, which others have too, into a block of this cache's own.
func (l *pages) own(s *mlx.Scope, t, n int) {
	if n == 0 {
		l.place(s, t, l.empty(s))
		return
	}
	b, made := l.table[t], []*mlx.Array(nil)
	for _, a := range b.rows {
		made = append(made, s.Keep(filled(s, s.SliceAxis(a, 2, 0, n))))
	}
	l.place(s, t, l.blocks.block(made, b.coded))
}

// filled is rows [1, H, n, w], fewer than a block has, in new memory of a block's size.
func filled(s *mlx.Scope, rows ...*mlx.Array) *mlx.Array {
	if rows[0].NDim() != 4 {
		return rows[0] // an earlier error left an inert array
	}
	dims, n := rows[0].Shape(), 0
	for _, r := range rows {
		n += r.Dim(2)
	}
	if n < Step {
		rows = append(rows, s.Zeros([]int{dims[0], dims[1], Step - n, dims[3]}, rows[0].DType()))
	}
	return s.Concat(2, rows...)
}

// convert codes what was native until now, at exactly Start tokens, and evaluates it at once. A block that others have stays as it is
// for them.
func (l *pages) convert(s *mlx.Scope, offset int) {
	if l.coded || offset < l.spec.Format.Start {
		return
	}
	l.coded = true
	for t := range l.table {
		l.encode(s, t)
	}
	_ = s.Eval(l.arrays()...) // the scope has an error, and the cache is undefined
}

// encode codes the native block of a tile.
func (l *pages) encode(s *mlx.Scope, t int) {
	b := l.table[t]
	coded := encodeAll(s, l.codes(), l.kernels, b.rows...)
	if b.shared() {
		l.place(s, t, l.blocks.block(keepAll(s, coded), true))
		return
	}
	b.replace(s, coded)
	b.coded = true
}

func (l *pages) put(s *mlx.Scope, k, v *mlx.Array, offset int) {
	if k.NDim() != 4 {
		return // an earlier error left an inert array
	}
	n := k.Dim(2)
	l.begin(s, k.DType(), offset, n)
	if s.Err() != nil {
		return
	}
	rows := encodeAll(s, l.codes(), l.kernels, k, v)
	for at := offset; at < offset+n; {
		b, next := l.table[at/Step], min(offset+n, (at/Step+1)*Step)
		for i, a := range rows {
			b.rows[i] = write(s, b.rows[i], s.SliceAxis(a, 2, at-offset, next-offset), at%Step)
		}
		at = next
	}
}

func (l *pages) view(s *mlx.Scope, from, to int) (k, v *mlx.Array) {
	p := part{blocks: l.table}
	return l.decoded(s, func(i int) *mlx.Array { return p.rows(s, i, from, to) })
}

func (l *pages) lend(s *mlx.Scope, dtype mlx.DType, offset, tokens int) mlx.CacheSequence {
	l.begin(s, dtype, offset, tokens)
	out := l.sequence(offset, tokens)
	out.Written = offset / Step
	for t, b := range l.table {
		out.Pairs = append(out.Pairs, pair(b.rows))
		out.Tiles = append(out.Tiles, [2]int32{int32(t), 0})
	}
	return out
}

func (l *pages) giveBack(s *mlx.Scope, after []mlx.CachePair) {
	for i, b := range l.table[len(l.table)-len(after):] {
		b.replace(s, unpaired(after[i]))
	}
}

// take has the blocks of the tokens in the part, as they are. They are evaluated: what a run holds came out well.
func (l *pages) take(s *mlx.Scope, from, to, _ int) (part, error) {
	p := part{at: from % Step, blocks: l.table[from/Step : (to+Step-1)/Step : (to+Step-1)/Step], form: l.form()}
	var arrays []*mlx.Array
	for _, b := range p.blocks {
		arrays = append(arrays, b.rows...)
	}
	if err := s.Eval(arrays...); err != nil {
		return part{}, err
	}
	p.blocks = append([]*block(nil), p.blocks...)
	for _, b := range p.blocks {
		b.runs++
	}
	return p, nil
}

// adopt makes a block of a part's arrays, if it has the rows of a whole one.
func (l *pages) adopt(p part, tokens int) part {
	if tokens != Step || p.lost > 0 || len(p.arrays) == 0 {
		return p
	}
	b := l.blocks.block(p.arrays, p.form == codedForm || l.spec.Format.Native())
	b.runs = 1
	return part{form: p.form, blocks: []*block{b}}
}

// fill takes blocks as they are where a section has one of the tile, and makes the others of the sections' rows.
func (l *pages) fill(s *mlx.Scope, sections []section, n int) {
	l.coded = n >= l.spec.Format.Start
	for t := range Capacity(n) / Step {
		of := within(sections, t*Step, min(n, (t+1)*Step))
		b := l.shared(of)
		if b == nil {
			b = l.compose(s, of)
		}
		l.place(s, t, b)
		if l.coded && !b.coded {
			l.encode(s, t)
		}
	}
}

// shared is the block that has all rows of a tile's sections: the last one's, which was written behind the same tokens. nil: there is
// none.
func (l *pages) shared(of []section) *block {
	last, rows := of[len(of)-1], 0
	for _, c := range of[:len(of)-1] {
		rows += c.tokens
	}
	if len(last.blocks) == 0 || (last.at+last.from)%Step != rows {
		return nil
	}
	return last.blocks[(last.at+last.from)/Step]
}

// compose makes a block of the sections' rows, all in one form.
func (l *pages) compose(s *mlx.Scope, of []section) *block {
	coded := l.form() == codedForm
	var made []*mlx.Array
	for i, code := range l.codes() {
		var rows []*mlx.Array
		for _, c := range of {
			a := c.rows(s, i, c.from-c.lost, c.from-c.lost+c.tokens)
			if coded && c.form == nativeForm {
				a = code.encode(s, a, l.kernels)
			}
			rows = append(rows, a)
		}
		if len(rows) == 1 && rows[0].NDim() == 4 && rows[0].Dim(2) == Step { // in new memory, for one array alone would stay where it is
			rows = []*mlx.Array{s.SliceAxis(rows[0], 2, 0, 1), s.SliceAxis(rows[0], 2, 1, Step)}
		}
		made = append(made, s.Keep(filled(s, rows...)))
	}
	return l.blocks.block(made, l.coded)
}

// within is the sections' parts of the tokens [first, end).
func within(sections []section, first, end int) []section {
	var out []section
	at := 0
	for _, c := range sections {
		from, to := max(first, at), min(end, at+c.tokens)
		if from < to {
			out = append(out, section{c.part, c.from + from - at, to - from, c.of})
		}
		at += c.tokens
	}
	return out
}
