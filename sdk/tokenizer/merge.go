package tokenizer

import "math/bits"

// mergeTable maps a pair of ids to the merge's rank and result. Open addressing: the lookup is the inner loop of encoding.
type mergeTable struct {
	keys  []uint64 // pair + 1; 0 is empty
	vals  []merge
	shift uint
}

type merge struct{ rank, id int32 }

func newMergeTable(n int) mergeTable {
	size := 1 << bits.Len(uint(2*n+1))
	return mergeTable{
		keys:  make([]uint64, size),
		vals:  make([]merge, size),
		shift: uint(64 - bits.TrailingZeros(uint(size))),
	}
}

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) + 1 }

func (t *mergeTable) slot(key uint64) int {
	i := int(key * 0x9E3779B97F4A7C15 >> t.shift)
	for t.keys[i] != 0 && t.keys[i] != key {
		i = (i + 1) & (len(t.keys) - 1)
	}
	return i
}

func (t *mergeTable) put(a, b int32, m merge) {
	key := pairKey(a, b)
	i := t.slot(key)
	t.keys[i], t.vals[i] = key, m
}

func (t *mergeTable) get(a, b int32) (merge, bool) {
	key := pairKey(a, b)
	i := t.slot(key)
	return t.vals[i], t.keys[i] == key
}

// work is the scratch of one Encode call.
type work struct {
	buf     []byte
	symbols []symbol
	heap    []candidate

	arrivals []arrival // of Unigram
}

// symbol is a node of the word's linked list; id is -1 once the symbol was merged into its left neighbour.
type symbol struct{ id, prev, next int32 }

// candidate is a merge of the symbol at pos with its right neighbour.
type candidate struct{ rank, pos, id int32 }

func (c candidate) less(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.pos < d.pos
}

func (w *work) push(id int32) {
	n := int32(len(w.symbols))
	if n > 0 {
		w.symbols[n-1].next = n
	}
	w.symbols = append(w.symbols, symbol{id: id, prev: n - 1, next: -1})
}

// scanLimit is the length up to which looking at every pair beats a heap; both take the lowest rank, leftmost first.
const scanLimit = 24

func (w *work) merge(t *mergeTable) {
	if len(w.symbols) <= scanLimit {
		w.mergeByScan(t)
		return
	}
	w.mergeByHeap(t)
}

// mergeByScan keeps the rank of each symbol's pair with its right neighbour, so that a round is one pass over numbers.
func (w *work) mergeByScan(t *mergeTable) {
	s := w.symbols
	const none = int32(1<<31 - 1)
	var best [scanLimit]merge
	look := func(i int32) {
		best[i] = merge{none, 0}
		if n := s[i].next; n >= 0 {
			if m, ok := t.get(s[i].id, s[n].id); ok {
				best[i] = m
			}
		}
	}
	for i := range s {
		look(int32(i))
	}
	for {
		at, rank := int32(-1), none
		for i := range s {
			if best[i].rank < rank {
				at, rank = int32(i), best[i].rank
			}
		}
		if at < 0 {
			return
		}
		best[s[at].next].rank = none
		w.join(at, best[at].id)
		look(at)
		if p := s[at].prev; p >= 0 {
			look(p)
		}
	}
}

func (w *work) mergeByHeap(t *mergeTable) {
	w.heap = w.heap[:0]
	for i := range w.symbols {
		w.offer(t, int32(i))
	}
	for len(w.heap) > 0 {
		c := w.pop()
		s := w.symbols[c.pos]
		if s.id < 0 || s.next < 0 {
			continue
		}
		// The pair may have changed since it was offered; it counts only if it still gives the same token.
		if m, ok := t.get(s.id, w.symbols[s.next].id); !ok || m.id != c.id {
			continue
		}
		w.join(c.pos, c.id)
		if p := w.symbols[c.pos].prev; p >= 0 {
			w.offer(t, p)
		}
		w.offer(t, c.pos)
	}
}

// join merges the symbol at pos with its right neighbour.
func (w *work) join(pos, id int32) {
	s := &w.symbols[pos]
	right := &w.symbols[s.next]
	s.id, s.next, right.id = id, right.next, -1
	if s.next >= 0 {
		w.symbols[s.next].prev = pos
	}
}

func (w *work) offer(t *mergeTable, pos int32) {
	s := w.symbols[pos]
	if s.next < 0 {
		return
	}
	if m, ok := t.get(s.id, w.symbols[s.next].id); ok {
		w.up(candidate{m.rank, pos, m.id})
	}
}

func (w *work) up(c candidate) {
	w.heap = append(w.heap, c)
	h := w.heap
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / 2
		if !c.less(h[p]) {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = c
}

func (w *work) pop() candidate {
	h := w.heap
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	w.heap = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for {
		k := 2*i + 1
		if k >= len(h) {
			break
		}
		if k+1 < len(h) && h[k+1].less(h[k]) {
			k++
		}
		if !h[k].less(last) {
			break
		}
		h[i] = h[k]
		i = k
	}
	h[i] = last
	return top
}
