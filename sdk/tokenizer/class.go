package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// The classes a split pattern asks about. They are those of the libraries behind `tokenizers` 0.23 (Oniguruma for
// patterns, Rust's char for Digits), whose Unicode is newer than Go's: unicode_extra.go holds the difference.
const (
	letter  = 1 << iota // \p{L}
	number              // \p{N}
	mark                // \p{M}
	space               // \s
	numeric             // Rust's char::is_numeric
	word                // \w of added tokens with single_word
)

// classTable is a two-level table from code point to class bits.
type classTable struct {
	ascii [utf8.RuneSelf]uint8
	pages [(unicode.MaxRune + 1) >> 8]*[256]uint8
}

var classes = sync.OnceValue(func() *classTable {
	flat := make([]uint8, unicode.MaxRune+1)
	set := func(bits uint8, tables ...*unicode.RangeTable) {
		for _, t := range tables {
			for _, r := range t.R16 {
				for c := int(r.Lo); c <= int(r.Hi); c += int(r.Stride) {
					flat[c] |= bits
				}
			}
			for _, r := range t.R32 {
				for c := int(r.Lo); c <= int(r.Hi); c += int(r.Stride) {
					flat[c] |= bits
				}
			}
		}
	}
	set(letter|word, unicode.L, extraL)
	set(number, unicode.N, extraN)
	set(numeric, unicode.N, extraNumeric)
	set(mark|word, unicode.M, extraM)
	set(space, unicode.White_Space)
	set(word, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
	t := &classTable{}
	copy(t.ascii[:], flat)
	shared := map[[256]uint8]*[256]uint8{}
	for i := range t.pages {
		page := [256]uint8(flat[i<<8:])
		if shared[page] == nil {
			shared[page] = &page
		}
		t.pages[i] = shared[page]
	}
	return t
})

func (t *classTable) of(r rune) uint8 {
	return t.pages[r>>8][r&0xFF]
}

// at is the class and the width of the character at s[i]; width 0 at the end. s is valid UTF-8.
func (t *classTable) at(s string, i int) (uint8, int) {
	if i >= len(s) {
		return 0, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return t.ascii[c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return t.of(r), n
}
