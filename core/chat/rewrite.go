package chat

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The names under which a rewritten template reaches our own functions.
const (
	tickName   = "clade_tick"
	tickVar    = "clade_ticked"
	tojsonName = "clade_tojson"
)

// renamed are the filters we serve ourselves.
var renamed = map[string]string{"tojson": tojsonName}

// rewrite prepares a template for the jinja library, which cannot be interrupted and decodes fewer string escapes than
// Python: each loop body and macro first calls tick, filters of ours get our names, and string literals are decoded here.
// The inserted tag stands directly behind its block's tag and ends as that one did, so that no whitespace changes hands.
func rewrite(src string) (string, error) {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	src = strings.TrimSuffix(src, "\n") // jinja2's keep_trailing_newline is off
	var b strings.Builder
	for src != "" {
		k := strings.IndexByte(src, '{')
		if k < 0 || k+1 == len(src) {
			break
		}
		open := src[k : k+2]
		closer, ok := map[string]string{"{{": "}}", "{%": "%}", "{#": "#}"}[open]
		if !ok {
			b.WriteString(src[:k+1])
			src = src[k+1:]
			continue
		}
		b.WriteString(src[:k])
		src = src[k+2:]
		if open == "{#" {
			end := strings.Index(src, closer)
			if end < 0 {
				return "", errors.New("a comment is not closed")
			}
			b.WriteString(open + src[:end+2])
			src = src[end+2:]
			continue
		}
		t := tag{src: src, closer: closer}
		if err := t.read(); err != nil {
			return "", err
		}
		src = src[t.i:]
		b.WriteString(open + t.out.String())
		if open == "{%" {
			switch t.keyword() {
			case "for", "macro":
				b.WriteString("{% set " + tickVar + " = " + tickName + "() " + t.end)
			case "raw":
				src = copyRaw(&b, src)
			}
		}
	}
	b.WriteString(src)
	return b.String(), nil
}

// copyRaw copies up to the endraw tag.
func copyRaw(b *strings.Builder, src string) string {
	for at := 0; ; {
		k := strings.Index(src[at:], "{%")
		if k < 0 {
			return src
		}
		at += k
		rest := strings.TrimLeft(strings.TrimLeft(src[at+2:], "-+"), " \t\n")
		if strings.HasPrefix(rest, "endraw") {
			b.WriteString(src[:at])
			return src[at:]
		}
		at += 2
	}
}

// tag reads one tag behind its opening and rewrites it.
type tag struct {
	src, closer string
	i           int
	out         strings.Builder
	end         string // as written: "%}" or "-%}"
	open        []byte // brackets
	piped       bool   // a filter's name comes next
}

func (t *tag) read() error {
	for t.i < len(t.src) {
		if len(t.open) == 0 && t.closed() {
			t.out.WriteString(t.end)
			t.i += len(t.end)
			return nil
		}
		c := t.src[t.i]
		switch {
		case c == '"' || c == '\'':
			if err := t.literal(c); err != nil {
				return err
			}
		case nameByte(c):
			t.name()
		default:
			if err := t.bracket(c); err != nil {
				return err
			}
			if c != ' ' && c != '\t' && c != '\n' {
				t.piped = c == '|'
			}
			t.out.WriteByte(c)
			if t.i++; c == '}' {
				t.out.WriteByte(' ') // the library takes "}}" within a dict for the end of the tag
			}
		}
	}
	return errors.New("a tag is not closed")
}

func (t *tag) closed() bool {
	rest := t.src[t.i:]
	for _, end := range []string{t.closer, "-" + t.closer} {
		if strings.HasPrefix(rest, end) {
			t.end = end
			return true
		}
	}
	return false
}

func (t *tag) bracket(c byte) error {
	switch c {
	case '(', '[', '{':
		if t.open = append(t.open, c); len(t.open) > maxBrackets {
			return fmt.Errorf("brackets are nested more than %d deep", maxBrackets)
		}
	case ')', ']', '}':
		if len(t.open) == 0 {
			return fmt.Errorf("a %q closes nothing", c)
		}
		t.open = t.open[:len(t.open)-1]
	}
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
	if ours, ok := renamed[name]; ok && t.piped {
		name = ours
	}
	t.piped = false
	t.out.WriteString(name)
}

// keyword is the first word of a statement.
func (t *tag) keyword() string {
	s := strings.TrimLeft(t.out.String(), "-+ \t\n")
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
		if t.src[t.i] == '\\' && t.i+1 < len(t.src) {
			s, n := unescape(t.src[t.i:])
			t.i += n
			for j := range len(s) {
				t.put(s[j], quote)
			}
			continue
		}
		t.put(t.src[t.i], quote)
		t.i++
	}
	if t.i >= len(t.src) {
		return errors.New("a string is not closed")
	}
	t.i++
	t.out.WriteByte(quote)
	return nil
}

func (t *tag) put(c, quote byte) {
	if c == '\\' || c == quote {
		t.out.WriteByte('\\')
	}
	t.out.WriteByte(c)
}
