package kv

import (
	"fmt"

	"github.com/clademl/clade/sdk/mlx"
)

// Fixed is an array that a layer keeps of its sequence in place of keys and values, of one shape whatever the number of tokens: the
// state of a recurrence.
type Fixed struct {
	Shape []int
	// Float32 is kept so whatever the compute dtype.
	Float32 bool
}

func (f Fixed) shape(dtype mlx.DType) shape {
	if f.Float32 {
		dtype = mlx.Float32
	}
	return shape{dtype, f.Shape}
}

// StateBytes is what the layer keeps of a sequence beside what BytesPerToken counts.
func (p Spec) StateBytes(dtype mlx.DType) int64 {
	total := 0
	for _, f := range p.State {
		total += f.shape(dtype).bytes()
	}
	return int64(total)
}

// state keeps fixed arrays as they are behind the last token, and behind those that the last pass was told to keep (Segment.Keep). It
// has no others to go back to: a run has them only where it ends behind one of these. A run and the cache that it was copied from or filled into hold the same
// arrays, which are never written again: see lend.
type state struct {
	spec   Spec
	held   []*mlx.Array // nil before the first token, which finds zeros
	shared bool         // with a run, or as marked: they are not written in place

	isMarked bool
	marked   []*mlx.Array // as they were behind markedAt tokens
	markedAt int

	kept []keptState // what the last pass was to keep
}

// keptState is the arrays as they were behind so many tokens.
type keptState struct {
	offset int
	arrays []*mlx.Array
}

func (l *state) arrays() []*mlx.Array { return l.held }

func (l *state) close() {
	l.release()
	l.forget()
	l.drop()
}

// release lets go of what was kept.
func (l *state) release() {
	for _, k := range l.kept {
		closeAll(k.arrays)
	}
	l.kept = nil
}

// drop lets go of the arrays, which stay where they are marked.
func (l *state) drop() {
	if !l.isMarked || !same(l.held, l.marked) {
		closeAll(l.held)
	}
	l.held, l.shared = nil, false
}

// forget lets go of the mark.
func (l *state) forget() {
	if l.isMarked && !same(l.held, l.marked) {
		closeAll(l.marked)
	}
	l.isMarked, l.marked = false, nil
}

func closeAll(arrays []*mlx.Array) {
	for _, a := range arrays {
		a.Close()
	}
}

// same reports whether two lists are one.
func same(a, b []*mlx.Array) bool { return len(a) == len(b) && (len(a) == 0 || a[0] == b[0]) }

func (l *state) mark(offset int) {
	l.forget()
	l.isMarked, l.marked, l.markedAt, l.shared = true, l.held, offset, true
}

// rewind goes back to the mark, and without one to the beginning.
func (l *state) rewind(n, offset int) int {
	switch {
	case n >= offset:
		return offset
	case l.isMarked && l.markedAt <= n:
		l.drop()
		l.held, l.shared = l.marked, true
		return l.markedAt
	default:
		l.close()
		return 0
	}
}

func (l *state) take(s *mlx.Scope, _, to, offset int) (p part, err error) {
	from := l.at(to, offset)
	if from == nil {
		return part{}, nil
	}
	if err := s.Eval(from...); err != nil {
		return part{}, err
	}
	for _, a := range from {
		p.arrays = append(p.arrays, s.Keep(s.Alias(a)))
	}
	l.shared = l.shared || to == offset
	return p, s.Err()
}

// at is the arrays behind n tokens of offset, nil where there are none.
func (l *state) at(n, offset int) []*mlx.Array {
	if n == offset {
		return l.held
	}
	for _, k := range l.kept {
		if k.offset == n {
			return k.arrays
		}
	}
	return nil
}

func (l *state) shapes(form uint8, _ int, dtype mlx.DType) ([]shape, bool) {
	var out []shape
	for _, f := range l.spec.State {
		out = append(out, f.shape(dtype))
	}
	return out, form == 0
}

func (l *state) join(s *mlx.Scope, sections []section) (part, error) { return lastPart(s, sections) }

func (l *state) usable(sections []section, n int) int {
	end, best := 0, 0
	for _, c := range sections {
		end += c.tokens
		if end <= n && len(c.arrays) > 0 && c.from+c.tokens == c.of {
			best = end
		}
	}
	return best
}

func (l *state) fill(s *mlx.Scope, sections []section, n int) {
	end := 0
	for _, c := range sections {
		if end += c.tokens; end != n {
			continue
		}
		for _, a := range c.arrays {
			l.held = append(l.held, s.Keep(s.Alias(a)))
		}
		l.shared = true
	}
}

// lend gives the arrays to an operation that makes the next ones of them. It may write them in place if own says so; else a run holds
// them too.
func (l *state) lend(s *mlx.Scope, dtype mlx.DType) (held []*mlx.Array, own bool) {
	if l.held == nil {
		for _, f := range l.spec.State {
			l.held = append(l.held, s.Keep(s.Zeros(f.Shape, f.shape(dtype).dtype)))
		}
	}
	return l.held, !l.shared
}

// giveBack takes the next arrays in their place, and what was to be kept on the way.
func (l *state) giveBack(s *mlx.Scope, next []*mlx.Array, kept []keptState) {
	l.drop()
	l.release()
	l.held, l.kept = next, kept
	for _, a := range next {
		s.Keep(a)
	}
	for _, k := range kept {
		for _, a := range k.arrays {
			s.Keep(a)
		}
	}
}

// state is layer i's storage, for a recurrence. A graph that takes a layer of another kind for one is told so.
func (c *Cache) state(s *mlx.Scope, i int) *state {
	if l, ok := c.layers[i].(*state); ok {
		return l
	}
	_ = s.Fail(fmt.Errorf("recur: layer %d keeps no state", i))
	return &state{spec: c.specs[i]}
}
