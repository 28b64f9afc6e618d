package chat

import (
	"strconv"
	"unicode/utf8"
)

var shortEscapes = map[byte]string{
	'n': "\n", 't': "\t", 'r': "\r", 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", '\\': "\\", '\'': "'", '"': `"`, '\n': "",
}

// unescape decodes the Python escape at the start of s (s[0] is a backslash): its text, and how many bytes it took. An
// unknown escape stands for itself.
func unescape(s string) (string, int) {
	if text, ok := shortEscapes[s[1]]; ok {
		return text, 2
	}
	digits, base, from := 0, 16, 2
	switch s[1] {
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	case '0', '1', '2', '3', '4', '5', '6', '7':
		base, from = 8, 1
		for digits < 3 && 1+digits < len(s) && s[1+digits] >= '0' && s[1+digits] <= '7' {
			digits++
		}
	}
	if digits > 0 && from+digits <= len(s) {
		if n, err := strconv.ParseUint(s[from:from+digits], base, 32); err == nil && utf8.ValidRune(rune(n)) {
			return string(rune(n)), from + digits
		}
	}
	return s[:1], 1
}
