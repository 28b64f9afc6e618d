package kv

// slots says where positions lie in a buffer: one behind the other, or, where a layer forgets, tile by tile in a ring, so that a
// tile of 256 positions is always in one piece. The first tile stays where tokens of it are kept.
type slots struct {
	ring   int // tiles of the ring; 0: there is none
	pinned int // tiles before it: 0 or 1
}

func (p Spec) ringOf() slots {
	if p.Window == 0 {
		return slots{}
	}
	out := slots{ring: Capacity(p.Window+Step) / Step}
	if p.Keep > 0 {
		out.pinned = 1
	}
	return out
}

// tile is the place of a tile.
func (l slots) tile(t int) int {
	if l.ring == 0 || t < l.pinned {
		return t
	}
	return l.pinned + (t-l.pinned)%l.ring
}

// most is the number of slots; 0: as many as positions.
func (l slots) most() int { return (l.pinned + l.ring) * Step }

// capacity is the number of slots that n positions need.
func (l slots) capacity(n int) int {
	if l.ring == 0 {
		return Capacity(n)
	}
	return min(Capacity(n), l.most())
}

// oldest is the first position behind the pinned tile that the end positions have not been written over.
func (l slots) oldest(end int) int {
	if l.ring == 0 {
		return 0
	}
	return max(0, end-l.ring*Step)
}

// span is positions that lie in one piece.
type span struct{ slot, position, n int }

// spans divides the positions [from, to), none of which have been written over, into pieces.
func (l slots) spans(from, to int) []span {
	if l.ring == 0 {
		return []span{{from, from, to - from}}
	}
	var out []span
	for p := from; p < to; {
		t := p / Step
		n := min(to, (t+1)*Step) - p
		at := span{l.tile(t)*Step + p%Step, p, n}
		if k := len(out) - 1; k >= 0 && out[k].slot+out[k].n == at.slot {
			out[k].n += n
		} else {
			out = append(out, at)
		}
		p += n
	}
	return out
}

// table is the tiles of the positions before end, for a kernel.
func (l slots) table(end int) [][2]int32 {
	out := make([][2]int32, (end+Step-1)/Step)
	for t := range out {
		out[t] = [2]int32{0, int32(l.tile(t) * Step)}
	}
	return out
}
