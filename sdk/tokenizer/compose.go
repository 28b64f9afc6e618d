package tokenizer

import (
	"cmp"
	"slices"

	"golang.org/x/text/unicode/norm"
)

// orderMarks sorts every run of combining marks by class, keeping the order within a class.
func orderMarks(rs []rune, cc []uint8) {
	type markRune struct {
		r rune
		c uint8
	}
	for i := 0; i < len(rs); {
		if cc[i] == 0 {
			i++
			continue
		}
		j := i
		var run []markRune
		for ; j < len(rs) && cc[j] != 0; j++ {
			run = append(run, markRune{rs[j], cc[j]})
		}
		slices.SortStableFunc(run, func(a, b markRune) int { return cmp.Compare(a.c, b.c) })
		for k, m := range run {
			rs[i+k], cc[i+k] = m.r, m.c
		}
		i = j
	}
}

// composeMarks joins each character with the last starter before it unless something between them blocks it.
func composeMarks(rs []rune, cc []uint8) []rune {
	out := rs[:0]
	starter, last := -1, -1 // index in out of the last starter; class of the last character kept behind it, -1 for none
	for i, r := range rs {
		c := int(cc[i])
		if starter >= 0 && (last < c || last == -1) {
			if p, ok := composePair(out[starter], r); ok {
				out[starter] = p
				continue
			}
		}
		if c == 0 {
			starter, last = len(out), -1
		} else {
			last = c
		}
		out = append(out, r)
	}
	return out
}

func composePair(a, b rune) (rune, bool) {
	s := []rune(norm.NFC.String(string([]rune{a, b})))
	if len(s) == 1 {
		return s[0], true
	}
	return 0, false
}
