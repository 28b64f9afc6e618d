package toolcall

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxNesting of a Python or Gemma value.
const maxNesting = 64

// pythonLiteral writes a Python literal as JSON.
func pythonLiteral(s string) (string, bool) {
	p := python{s: s}
	v := p.value(0)
	p.space()
	return v, p.err == nil && p.i == len(p.s)
}

// readPython reads [f(a=1), g(b='x')], or one call without brackets. Positional arguments get the names of the tool's
// parameters in their order.
func readPython(body string, t *Tools) ([]Call, error) {
	p := python{s: strings.TrimSpace(body)}
	list := p.take('[')
	var out []Call
	for p.err == nil {
		out = append(out, p.call(t))
		if !list || !p.take(',') {
			break
		}
		if p.peek() == ']' {
			break
		}
	}
	if list && !p.take(']') {
		p.fail("want ]")
	}
	p.space()
	if p.err == nil && p.i < len(p.s) {
		p.fail("something follows the calls")
	}
	return out, p.err
}

type python struct {
	s   string
	i   int
	err error
}

func (p *python) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("is not a call in Python: "+format+" at byte %d", append(args, p.i)...)
	}
}

func (p *python) space() {
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.i]) >= 0 {
		p.i++
	}
}

func (p *python) peek() byte {
	p.space()
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

func (p *python) take(c byte) bool {
	if p.err == nil && p.peek() == c {
		p.i++
		return true
	}
	return false
}

func (p *python) word() string {
	p.space()
	start := p.i
	for p.i < len(p.s) && (wordByte(p.s[p.i]) || p.s[p.i] == '.' || p.s[p.i] == '-') {
		p.i++
	}
	return p.s[start:p.i]
}

func (p *python) call(t *Tools) Call {
	c := Call{Name: p.word()}
	if c.Name == "" || !p.take('(') {
		p.fail("want a name and (")
		return c
	}
	var args members
	for n := 0; p.err == nil && !p.take(')'); n++ {
		at := p.i
		key := p.word()
		if key == "" || !p.take('=') {
			p.i = at
			if t == nil || n >= len(t.order[c.Name]) {
				p.fail("an argument has no name")
				break
			}
			key = t.order[c.Name][n]
		}
		args.set(key, p.value(0))
		if p.peek() != ')' && !p.take(',') {
			p.fail("want , or )")
		}
	}
	c.Arguments = args.String()
	return c
}

func (p *python) value(depth int) string {
	if depth > maxNesting {
		p.fail("a value is nested more than %d deep", maxNesting)
	}
	if p.err != nil {
		return "null"
	}
	switch c := p.peek(); {
	case c == '"' || c == '\'':
		return quote(p.text())
	case c == '[':
		return p.list('[', ']', depth)
	case c == '(':
		return p.list('(', ')', depth)
	case c == '{':
		return p.dict(depth)
	}
	switch w := p.word(); w {
	case "True", "true":
		return "true"
	case "False", "false":
		return "false"
	case "None", "null":
		return "null"
	default:
		w = strings.ReplaceAll(w, "_", "")
		if p.i < len(p.s) && p.s[p.i] == '+' && w != "" && w[len(w)-1]|0x20 == 'e' {
			p.i++
			w += p.word()
		}
		if n, err := strconv.ParseFloat(w, 64); err == nil && json.Valid([]byte(w)) {
			return w
		} else if err == nil && n == float64(int64(n)) && !strings.ContainsAny(w, "xXpP") {
			return strconv.FormatInt(int64(n), 10) // such as 1. or 007
		}
		p.fail("%q is not a value", w)
		return "null"
	}
}

func (p *python) list(open, end byte, depth int) string {
	p.take(open)
	var items []string
	for p.err == nil && !p.take(end) {
		items = append(items, p.value(depth+1))
		if p.peek() != end && !p.take(',') {
			p.fail("want , or %c", end)
		}
	}
	return "[" + strings.Join(items, ",") + "]"
}

func (p *python) dict(depth int) string {
	p.take('{')
	var m members
	for p.err == nil && !p.take('}') {
		key := p.value(depth + 1)
		if !p.take(':') {
			p.fail("want :")
		}
		var name string
		if json.Unmarshal([]byte(key), &name) != nil {
			name = key // Python's other keys, as json.dumps writes them
		}
		m.set(name, p.value(depth+1))
		if p.peek() != '}' && !p.take(',') {
			p.fail("want , or }")
		}
	}
	return m.String()
}

var pythonEscapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': `"`, 'b': "\b", 'f': "\f", '/': "/", '\n': "", '0': "\x00"}

// text reads a literal in single, double or triple quotes.
func (p *python) text() string {
	mark := p.s[p.i : p.i+1]
	if triple := strings.Repeat(mark, 3); strings.HasPrefix(p.s[p.i:], triple) {
		mark = triple
	}
	p.i += len(mark)
	var b strings.Builder
	for p.i < len(p.s) {
		switch rest := p.s[p.i:]; {
		case strings.HasPrefix(rest, mark):
			p.i += len(mark)
			return b.String()
		case rest[0] == '\\' && len(rest) > 1:
			text, n := pythonEscape(rest)
			b.WriteString(text)
			p.i += n
		default:
			b.WriteByte(rest[0])
			p.i++
		}
	}
	p.fail("a text is not closed")
	return b.String()
}

func pythonEscape(s string) (string, int) {
	if text, ok := pythonEscapes[s[1]]; ok {
		return text, 2
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[1]]
	if digits > 0 && len(s) >= 2+digits {
		if n, err := strconv.ParseUint(s[2:2+digits], 16, 32); err == nil {
			if s[1] == 'u' && n >= 0xD800 && n < 0xDC00 && len(s) >= 12 && s[6:8] == `\u` {
				if low, err := strconv.ParseUint(s[8:12], 16, 32); err == nil && low >= 0xDC00 && low < 0xE000 {
					return string(rune(0x10000 + (n-0xD800)<<10 + low - 0xDC00)), 12
				}
			}
			if utf8.ValidRune(rune(n)) {
				return string(rune(n)), 2 + digits
			}
		}
	}
	return s[:1], 1
}

var errEmpty = errors.New("is empty")
