package nn

import (
	"fmt"
	"slices"

	"github.com/clademl/clade/sdk/mlx"
)

// Matrix is an array or packed for the kernels.
type Matrix struct {
	Array  *mlx.Array
	Packed *mlx.Packed
}

// Close frees it, on the worker's thread.
func (m Matrix) Close() {
	m.Array.Close()
	m.Packed.Close()
}

// Update is a low-rank change of one layer: y = W x + Scale B(A x).
type Update struct {
	A, B  Matrix // [rank, in], [out, rank]
	Scale float64
}

// LowRank is the changes of one adapter. It owns them.
type LowRank struct {
	updates map[int]Update // by the layer's number on the Board
}

// Add puts the change of one layer, which it takes over. It refuses a path without a layer, and a second change of one.
func (l *LowRank) Add(b *Board, path string, u Update) error {
	at, ok := b.layers[path]
	if !ok {
		return fmt.Errorf("the graph has no linear layer %s", path)
	}
	if l.updates == nil {
		l.updates = map[int]Update{}
	}
	if _, twice := l.updates[at]; twice {
		return fmt.Errorf("layer %s is changed twice", path)
	}
	l.updates[at] = u
	return nil
}

// Close frees the changes, on the worker's thread.
func (l *LowRank) Close() {
	for _, u := range l.updates {
		u.A.Close()
		u.B.Close()
	}
	l.updates = nil
}

// Use is an adapter as one sequence has it.
type Use struct {
	*LowRank
	Scale float64
}

// Stack is the adapters of a sequence, in the order in which their changes are added.
type Stack []Use

// Span is rows of a forward that have a stack.
type Span struct {
	First, Rows int
	Stack       Stack
}

// Board says which rows of the present forward have which adapters. Linear layers made with it ask it; whoever begins a forward writes
// it (sdk/kv does). It is the worker's thread's alone.
type Board struct {
	layers map[string]int
	spans  []Span
}

// NewBoard has no layer and no span.
func NewBoard() *Board { return &Board{layers: map[string]int{}} }

// Set replaces the spans, which are disjoint and in the order of their rows; none: every row is plain.
func (b *Board) Set(spans ...Span) { b.spans = spans }

// Boarded are Parameters of a model that takes adapters.
type Boarded interface{ Board() *Board }

// slot is a layer's place on a board; nil for a layer without adapters.
type slot struct {
	board *Board
	layer int
}

func newSlot(p Parameters, path string) *slot {
	boarded, ok := p.(Boarded)
	if !ok || boarded.Board() == nil {
		return nil
	}
	b := boarded.Board()
	if _, ok := b.layers[path]; !ok {
		b.layers[path] = len(b.layers)
	}
	return &slot{b, b.layers[path]}
}

// change is an update of one of several layers in rows of a forward.
type change struct {
	Update
	part, first, rows int
}

// changes are those of the present forward, in the order of rows and stacks.
func changes(layers ...Linear) []change {
	var out []change
	for part, l := range layers {
		if l.slot == nil {
			continue
		}
		for _, span := range l.slot.board.spans {
			for _, use := range span.Stack {
				if u, ok := use.updates[l.slot.layer]; ok {
					u.Scale *= use.Scale
					out = append(out, change{u, part, span.First, span.Rows})
				}
			}
		}
	}
	return out
}

// kernelTakes reports whether the changes go into the kernels' product.
func kernelTakes(cs []change) bool {
	return mlx.LinearUpdates() && !slices.ContainsFunc(cs, func(c change) bool { return c.A.Packed == nil || c.B.Packed == nil })
}

// packedUpdates is the changes as the kernels take them.
func packedUpdates(cs []change) []mlx.PackedUpdate {
	out := make([]mlx.PackedUpdate, len(cs))
	for i, c := range cs {
		out[i] = mlx.PackedUpdate{A: c.A.Packed, B: c.B.Packed, Part: c.part, First: c.first, Rows: c.rows, Scale: float32(c.Scale)}
	}
	return out
}

// product is packed products with the changes in them.
func product(s *mlx.Scope, x *mlx.Array, l mlx.PackedLinear, cs []change) *mlx.Array {
	l.Updates = packedUpdates(cs)
	return s.PackedLinear(x, l)
}

// byRows computes x [1, T, in] in runs of rows: plain ones, and those of one span with its changes. Plain rows so keep the bits that they
// have in a forward without adapters.
func byRows(s *mlx.Scope, x *mlx.Array, cs []change, plain func(*mlx.Array) *mlx.Array, changed func(*mlx.Array, []change) *mlx.Array) *mlx.Array {
	if s.Err() != nil || x.NDim() < 2 {
		return plain(x)
	}
	total := x.Dim(-2)
	slices.SortStableFunc(cs, func(a, b change) int { return a.first - b.first })
	var parts []*mlx.Array
	cut := func(from, to int) *mlx.Array {
		if from == 0 && to == total {
			return x
		}
		return s.SliceAxis(x, -2, from, to)
	}
	at := 0
	for len(cs) > 0 {
		first, n := cs[0].first, 0
		for n < len(cs) && cs[n].first == first {
			n++
		}
		if first > at {
			parts = append(parts, plain(cut(at, first)))
		}
		at = first + cs[0].rows
		parts = append(parts, changed(cut(first, at), cs[:n]))
		cs = cs[n:]
	}
	if at < total {
		parts = append(parts, plain(cut(at, total)))
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return s.Concat(-2, parts...)
}

// change adds to y, the layer's own product of all rows of x, what the changes of part add.
func addChanges(s *mlx.Scope, y, x *mlx.Array, cs []change, part int) *mlx.Array {
	for _, c := range cs {
		if c.part == part {
			y = s.Add(y, c.Update.forward(s, x))
		}
	}
	return y
}

// forward is Scale B(A x), computed in the update's own dtype where it is an array.
func (u Update) forward(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	if u.A.Packed != nil {
		low := s.PackedLinear(x, mlx.PackedLinear{Weights: []*mlx.Packed{u.A.Packed}})
		return s.MulScalar(s.PackedLinear(low, mlx.PackedLinear{Weights: []*mlx.Packed{u.B.Packed}}), u.Scale)
	}
	wide := s.AsType(x, u.A.Array.DType())
	y := s.Matmul(s.Matmul(wide, s.Transpose(u.A.Array)), s.Transpose(u.B.Array))
	return s.AsType(s.MulScalar(y, u.Scale), x.DType())
}
