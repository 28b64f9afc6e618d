package tokenizer

import (
	_ "embed"
	"encoding/binary"
	"sync"
	"unicode"
	"unicode/utf8"
)

// The classes that patterns, pre-tokenizers and normalizers ask about. They are those of the libraries behind `tokenizers`
// 0.23.3, some newer than Go's Unicode and some older; testdata/unicode_classes.py asks `tokenizers` for them, in this order.
const (
	letter     = 1 << iota // \p{L}
	number                 // \p{N}
	mark                   // \p{M}
	space                  // \s
	numeric                // what Digits splits
	word                   // \w of Whitespace and of added tokens with single_word
	upper                  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	lower                  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
	punct                  // what Punctuation splits
	nonspacing             // what BertNormalizer's strip_accents removes
	combining              // what StripAccents removes
	other                  // what BertNormalizer's clean_text removes
)

//go:embed unicode.bin
var unicodeRuns []byte

// classTable is a two-level table from code point to class bits, and one to scripts.
type classTable struct {
	ascii   [utf8.RuneSelf]uint16
	pages   [(unicode.MaxRune + 1) >> 8]*[256]uint16
	scripts [(unicode.MaxRune + 1) >> 8]*[256]uint16
}

var classes = sync.OnceValue(func() *classTable {
	t := &classTable{}
	rest := fillPages(&t.pages, unicodeRuns)
	fillPages(&t.scripts, rest)
	copy(t.ascii[:], t.pages[0][:])
	return t
})

// fillPages reads one run-length list; equal pages are shared.
func fillPages(pages *[(unicode.MaxRune + 1) >> 8]*[256]uint16, runs []byte) []byte {
	shared := map[[256]uint16]*[256]uint16{}
	var page [256]uint16
	for c := 0; c <= unicode.MaxRune; {
		length, n := binary.Uvarint(runs)
		value, m := binary.Uvarint(runs[n:])
		runs = runs[n+m:]
		for range length {
			page[c&0xFF] = uint16(value)
			if c&0xFF == 0xFF {
				if shared[page] == nil {
					same := page
					shared[page] = &same
				}
				pages[c>>8] = shared[page]
			}
			c++
		}
	}
	return runs
}

func (t *classTable) of(r rune) uint16 { return t.pages[r>>8][r&0xFF] }

// script is the number of r's script, 0 for characters of any script.
func (t *classTable) script(r rune) uint16 { return t.scripts[r>>8][r&0xFF] }

// at is the class and the width of the character at s[i]; width 0 at the end. s is valid UTF-8.
func (t *classTable) at(s string, i int) (uint16, int) {
	if i >= len(s) {
		return 0, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return t.ascii[c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return t.of(r), n
}
