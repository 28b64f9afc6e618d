package chat

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// tag reads what is inside one tag and rewrites it.
type tag struct {
	src, closer string
	i           int
	out         strings.Builder
	sign        byte // of the closing
	open        int  // brackets
	piped       bool // a filter's name comes next
}

// read stops behind the closing. Like jinja2's lexer, it sees no closing within brackets or strings.
func (t *tag) read() error {
	for t.i < len(t.src) {
		if t.open == 0 && t.closed() {
			return nil
		}
		c := t.src[t.i]
		switch {
		case c == '"' || c == '\'':
			if err := t.literal(c); err != nil {
				return err
			}
		case c >= '0' && c <= '9':
			t.number()
		case nameByte(c):
			t.name()
		default:
			if err := t.operator(c); err != nil {
				return err
			}
		}
	}
	return errors.New("a tag is not closed")
}

func (t *tag) closed() bool {
	rest := t.src[t.i:]
	if strings.HasPrefix(rest, t.closer) {
		t.i += len(t.closer)
		return true
	}
	signed := strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") && t.closer == "%}"
	if signed && strings.HasPrefix(rest[1:], t.closer) {
		t.sign = rest[0]
		t.i += 1 + len(t.closer)
		return true
	}
	return false
}

func (t *tag) operator(c byte) error {
	switch c {
	case '(', '[', '{':
		if t.open++; t.open > maxBrackets {
			return fmt.Errorf("brackets are nested more than %d deep", maxBrackets)
		}
	case ')', ']', '}':
		if t.open--; t.open < 0 {
			return fmt.Errorf("a %q closes nothing", c)
		}
	}
	if c != ' ' && c != '\t' && c != '\n' {
		t.piped = c == '|'
	}
	t.out.WriteByte(c)
	if c == '}' {
		t.out.WriteByte(' ') // the library takes "}}" within a dict for the end of the tag
	}
	t.i++
	return nil
}

func nameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf
}

func (t *tag) name() {
	start := t.i
	for t.i < len(t.src) && nameByte(t.src[t.i]) {
		t.i++
	}
	name := t.src[start:t.i]
	if ours, ok := ourFilters[name]; ok && t.piped {
		name = ours.name
	}
	t.piped = false
	t.out.WriteString(name)
}

// number writes 1_000 and 1e9 in the forms that the library reads.
func (t *tag) number() {
	t.piped = false
	start, exponent, point := t.i, false, false
	for ; t.i < len(t.src); t.i++ {
		c := t.src[t.i]
		switch {
		case c >= '0' && c <= '9', c == '_':
			continue
		case c == '.' && !point && !exponent && t.i+1 < len(t.src) && t.src[t.i+1] >= '0' && t.src[t.i+1] <= '9':
			point = true
			continue
		case (c == 'e' || c == 'E') && !exponent && exponentAt(t.src[t.i+1:]):
			exponent = true
			continue
		case (c == '-' || c == '+') && exponent && t.src[t.i-1]|0x20 == 'e':
			continue
		}
		break
	}
	s := strings.ReplaceAll(t.src[start:t.i], "_", "")
	if k := strings.IndexAny(s, "eE"); k >= 0 && !point {
		s = s[:k] + ".0" + s[k:]
	}
	t.out.WriteString(s)
}

func exponentAt(s string) bool {
	s = strings.TrimLeft(s, "+-")
	return s != "" && s[0] >= '0' && s[0] <= '9'
}

// keyword is the first word of a statement.
func (t *tag) keyword() string {
	s := strings.TrimLeftFunc(t.out.String(), pythonSpace)
	end := 0
	for end < len(s) && nameByte(s[end]) {
		end++
	}
	return s[:end]
}

// literal decodes a Python string literal and writes it with the escapes that the library knows.
func (t *tag) literal(quote byte) error {
	t.piped = false
	t.i++
	t.out.WriteByte(quote)
	for t.i < len(t.src) && t.src[t.i] != quote {
		s, n := t.src[t.i:t.i+1], 1
		if s == `\` && t.i+1 < len(t.src) {
			s, n = unescape(t.src[t.i:])
		}
		writeLiteral(&t.out, s, quote)
		t.i += n
	}
	if t.i >= len(t.src) {
		return errors.New("a string is not closed")
	}
	t.i++
	t.out.WriteByte(quote)
	return nil
}
