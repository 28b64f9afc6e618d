package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// byteRunes is GPT-2's table from a byte to the printable character that stands for it: printable Latin-1 stands for
// itself, the other 68 bytes take the code points from U+0100 on, in order.
var byteRunes = func() (t [256]rune) {
	next := rune(256)
	for b := range 256 {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			t[b] = rune(b)
			continue
		}
		t[b] = next
		next++
	}
	return t
}()

// runeBytes is the inverse of byteRunes; -1 where a character stands for no byte.
var runeBytes = func() (t [324]int16) {
	for i := range t {
		t[i] = -1
	}
	for b, r := range byteRunes {
		t[r] = int16(b)
	}
	return t
}()

// appendByteLevel appends the characters that stand for the bytes of s.
func appendByteLevel(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = utf8.AppendRune(dst, byteRunes[s[i]])
	}
	return dst
}

// appendTokenBytes appends the bytes a token stands for. A token with a character outside the table stands for its own
// UTF-8 bytes, as a whole.
func appendTokenBytes(dst []byte, token string) []byte {
	n := len(dst)
	for _, r := range token {
		if r >= rune(len(runeBytes)) || runeBytes[r] < 0 {
			return append(dst[:n], token...)
		}
		dst = append(dst, byte(runeBytes[r]))
	}
	return dst
}

// validText replaces every maximal invalid part of s by one U+FFFD (Unicode's practice, Python's errors="replace").
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			n = invalidPart(s)
		}
		b.WriteRune(r)
		s = s[n:]
	}
	return b.String()
}

// invalidPart is the length of the maximal invalid part that s begins with: the longest prefix that could still have
// become a character, at least one byte.
func invalidPart(s string) int {
	need, lo, hi := sequence(s[0])
	for i := 1; i < need; i++ {
		if i >= len(s) || s[i] < lo || s[i] > hi {
			return i
		}
		lo, hi = 0x80, 0xBF
	}
	return 1
}

// sequence is the length of the UTF-8 sequence that b begins and the bounds of its second byte; 1 when b begins none.
func sequence(b byte) (n int, lo, hi byte) {
	switch {
	case b < 0xC2 || b > 0xF4:
		return 1, 0x80, 0xBF
	case b < 0xE0:
		return 2, 0x80, 0xBF
	case b == 0xE0:
		return 3, 0xA0, 0xBF
	case b == 0xED:
		return 3, 0x80, 0x9F
	case b < 0xF0:
		return 3, 0x80, 0xBF
	case b == 0xF0:
		return 4, 0x90, 0xBF
	case b == 0xF4:
		return 4, 0x80, 0x8F
	}
	return 4, 0x80, 0xBF
}

// incompleteTail is how many bytes at the end of b begin a character that more bytes could complete.
func incompleteTail(b []byte) int {
	for back := 1; back <= 3 && back <= len(b); back++ {
		c := b[len(b)-back]
		if c&0xC0 == 0x80 {
			continue
		}
		if n, _, _ := sequence(c); n > back && invalidPart(string(b[len(b)-back:])) == back {
			return back
		}
		return 0
	}
	return 0
}
