package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// mapped rewrites or, with -1, drops each character by itself.
type mapped func(rune) rune

func (m mapped) normalize(s string) (string, error) { return strings.Map(m, s), nil }

// nmt is the cleaning of SentencePiece's nmt rules.
func nmt(r rune) rune {
	switch {
	case r >= 0x01 && r <= 0x08, r == 0x0B, r >= 0x0E && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
		return -1
	case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, r >= 0x200B && r <= 0x200F, r == 0x2028, r == 0x2029,
		r == 0x2581, r == 0xFEFF, r == 0xFFFD:
		return ' '
	}
	return r
}

func dropCombining(r rune) rune {
	if classes().of(r)&combining != 0 {
		return -1
	}
	return r
}

func dropNonspacing(r rune) rune {
	if classes().of(r)&nonspacing != 0 {
		return -1
	}
	return r
}

// bertClean drops control characters and makes every whitespace a space.
func bertClean(r rune) rune {
	c := classes().of(r)
	switch {
	case c&other != 0:
		return -1
	case c&space != 0:
		return ' '
	}
	return r
}

// spacedHan puts a space on both sides of each ideograph.
type spacedHan struct{}

func (spacedHan) normalize(s string) (string, error) {
	if strings.IndexFunc(s, ideograph) < 0 {
		return s, nil
	}
	var b strings.Builder
	b.Grow(len(s) + len(s)/2)
	for _, r := range s {
		if !ideograph(r) {
			b.WriteRune(r)
			continue
		}
		b.WriteByte(' ')
		b.WriteRune(r)
		b.WriteByte(' ')
	}
	return b.String(), nil
}

// ideograph is BERT's notion of a Chinese character.
func ideograph(r rune) bool {
	if r < 0x3400 {
		return false
	}
	for _, block := range [][2]rune{
		{0x4E00, 0x9FFF},
		{0x3400, 0x4DBF},
		{0x20000, 0x2A6DF},
		{0x2A700, 0x2B73F},
		{0x2B740, 0x2B81F},
		{0x2B920, 0x2CEAF},
		{0xF900, 0xFAFF},
		{0x2F800, 0x2FA1F},
	} {
		if r >= block[0] && r <= block[1] {
			return true
		}
	}
	return false
}

// bertNormalizer is BertNormalizer's parts, in its order.
func bertNormalizer(clean, han, accents, lower bool) normalizers {
	var ns normalizers
	if clean {
		ns = append(ns, mapped(bertClean))
	}
	if han {
		ns = append(ns, spacedHan{})
	}
	if accents {
		ns = append(ns, unicodeForms["NFD"], mapped(dropNonspacing))
	}
	if lower {
		ns = append(ns, lowercase{})
	}
	return ns
}

// stripSpace removes whitespace at the ends of a text.
type stripSpace struct{ left, right bool }

func (n stripSpace) normalize(s string) (string, error) {
	if n.left {
		s = strings.TrimLeftFunc(s, isSpace)
	}
	if n.right {
		s = strings.TrimRightFunc(s, isSpace)
	}
	return s, nil
}

func isSpace(r rune) bool { return classes().of(r)&space != 0 }

// byteSpelling is ByteLevel as a normalizer.
type byteSpelling struct{}

func (byteSpelling) normalize(s string) (string, error) {
	return string(appendByteLevel(make([]byte, 0, utf8.UTFMax/2*len(s)), s)), nil
}
