package tokenizer

import "math/bits"

// prefixTree finds, at any place of a text, the tokens that begin there. Its edges are in one open-addressed table, so that
// a vocabulary of 262,144 tokens takes a few tens of megabytes and a step is one lookup.
type prefixTree struct {
	keys  []uint64 // node<<8 | byte, plus 1; 0 is empty
	next  []int32
	ids   []int32 // by node; -1 where no token ends
	shift uint
	used  int
}

func newPrefixTree(tokens int) *prefixTree {
	t := &prefixTree{ids: []int32{-1}}
	t.resize(1 << bits.Len(uint(4*tokens+15)))
	return t
}

func (t *prefixTree) resize(size int) {
	keys, next := t.keys, t.next
	t.keys, t.next = make([]uint64, size), make([]int32, size)
	t.shift = uint(64 - bits.TrailingZeros(uint(size)))
	for i, k := range keys {
		if k != 0 {
			j := t.slot(k)
			t.keys[j], t.next[j] = k, next[i]
		}
	}
}

func (t *prefixTree) slot(key uint64) int {
	i := int(key * 0x9E3779B97F4A7C15 >> t.shift)
	for t.keys[i] != 0 && t.keys[i] != key {
		i = (i + 1) & (len(t.keys) - 1)
	}
	return i
}

// step is the node behind b, -1 when no token goes on with b.
func (t *prefixTree) step(node int32, b byte) int32 {
	i := t.slot((uint64(node)<<8 | uint64(b)) + 1)
	if t.keys[i] == 0 {
		return -1
	}
	return t.next[i]
}

// walk is the node behind s.
func (t *prefixTree) walk(node int32, s string) int32 {
	for i := 0; i < len(s) && node >= 0; i++ {
		node = t.step(node, s[i])
	}
	return node
}

func (t *prefixTree) add(token string, id int32) {
	node := int32(0)
	for i := range len(token) {
		key := (uint64(node)<<8 | uint64(token[i])) + 1
		j := t.slot(key)
		if t.keys[j] == 0 {
			if t.used++; 2*t.used > len(t.keys) {
				t.resize(2 * len(t.keys))
				j = t.slot(key)
			}
			t.keys[j], t.next[j] = key, int32(len(t.ids))
			t.ids = append(t.ids, -1)
		}
		node = t.next[j]
	}
	t.ids[node] = id
}
