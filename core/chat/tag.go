package chat

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// token is one word of a tag, written as the library reads it.
type token struct {
	kind byte // one of the kinds below
	text string
}

const (
	wordToken   = 'w'
	textToken   = 't' // a string literal with its quotes
	numberToken = 'n'
	signToken   = 's' // an operator or bracket
)

// tag reads what is inside one tag.
type tag struct {
	src, closer string
	i           int
	tokens      []token
	sign        byte // of the closing
	open        int  // brackets
}

// read stops behind the closing. Like jinja2's lexer, it sees no closing within brackets or strings.
func (t *tag) read() error {
	for t.i < len(t.src) {
		if t.open == 0 && t.closed() {
			return nil
		}
		c := t.src[t.i]
		switch {
		case pythonSpace(rune(c)):
			t.i++
		case c == '"' || c == '\'':
			if err := t.literal(c); err != nil {
				return err
			}
		case c >= '0' && c <= '9':
			t.number()
		case nameByte(c):
			start := t.i
			for t.i < len(t.src) && nameByte(t.src[t.i]) {
				t.i++
			}
			t.add(wordToken, t.src[start:t.i])
		default:
			if err := t.operator(c); err != nil {
				return err
			}
		}
	}
	return errors.New("a tag is not closed")
}

func (t *tag) add(kind byte, text string) { t.tokens = append(t.tokens, token{kind, text}) }

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

// doubles are the operators of two characters.
var doubles = map[string]bool{"**": true, "//": true, "==": true, "!=": true, "<=": true, ">=": true}

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
	n := 1
	if t.i+2 <= len(t.src) && doubles[t.src[t.i:t.i+2]] {
		n = 2
	}
	t.add(signToken, t.src[t.i:t.i+n])
	t.i += n
	return nil
}

func nameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf
}

// number writes 1_000 and 1e9 in the forms that the library reads. Behind a point, as in a.0.b, it is an index.
func (t *tag) number() {
	index := len(t.tokens) > 0 && t.tokens[len(t.tokens)-1].text == "."
	start, exponent, point := t.i, index, index
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
	t.add(numberToken, s)
}

func exponentAt(s string) bool {
	s = strings.TrimLeft(s, "+-")
	return s != "" && s[0] >= '0' && s[0] <= '9'
}

// literal decodes a Python string literal and writes it with the escapes that the library knows.
func (t *tag) literal(quote byte) error {
	var b strings.Builder
	b.WriteByte(quote)
	for t.i++; t.i < len(t.src) && t.src[t.i] != quote; {
		s, n := t.src[t.i:t.i+1], 1
		if s == `\` && t.i+1 < len(t.src) {
			s, n = unescape(t.src[t.i:])
		}
		writeLiteral(&b, s, quote)
		t.i += n
	}
	if t.i >= len(t.src) {
		return errors.New("a string is not closed")
	}
	t.i++
	b.WriteByte(quote)
	t.add(textToken, b.String())
	return nil
}
