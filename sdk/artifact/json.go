package artifact

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonDepth is the deepest nesting accepted; real configs stay under 10.
const jsonDepth = 64

// jsonValues is the most values one document may hold as a tree, which takes many times its text in memory.
const jsonValues = 1 << 20

// jsonReader walks one JSON document strictly: duplicate keys, control characters, invalid UTF-8, lone surrogates and
// trailing text are refused. NaN, Infinity and -Infinity are read as Python's json writes them.
type jsonReader struct {
	buf   []byte
	pos   int
	depth int
	count int
}

func (r *jsonReader) fail(format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", r.pos, fmt.Sprintf(format, args...))
}

func (r *jsonReader) space() {
	for r.pos < len(r.buf) {
		switch r.buf[r.pos] {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return
		}
	}
}

func (r *jsonReader) peek() byte {
	r.space()
	if r.pos == len(r.buf) {
		return 0
	}
	return r.buf[r.pos]
}

func (r *jsonReader) expect(c byte) error {
	if got := r.peek(); got != c || r.pos == len(r.buf) {
		if r.pos == len(r.buf) {
			return r.fail("the text ends where %q belongs", c)
		}
		return r.fail("found %q where %q belongs", got, c)
	}
	r.pos++
	return nil
}

// end accepts only white space up to the end.
func (r *jsonReader) end() error {
	r.space()
	if r.pos != len(r.buf) {
		return r.fail("text after the end of the document")
	}
	return nil
}

// object calls member for each key in order; member must consume the value.
func (r *jsonReader) object(member func(key string) error) error {
	if err := r.enter('{'); err != nil {
		return err
	}
	defer r.leave()
	seen := map[string]struct{}{}
	if r.peek() == '}' {
		r.pos++
		return nil
	}
	for {
		if r.peek() != '"' {
			return r.fail("an object key must be a string")
		}
		key, err := r.text()
		if err != nil {
			return err
		}
		if _, dup := seen[key]; dup {
			return r.fail("key %q appears twice", clip(key))
		}
		seen[key] = struct{}{}
		if err := r.expect(':'); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		if r.peek() == ',' {
			r.pos++
			continue
		}
		return r.expect('}')
	}
}

// array calls element for each element; element must consume the value.
func (r *jsonReader) array(element func(i int) error) error {
	if err := r.enter('['); err != nil {
		return err
	}
	defer r.leave()
	if r.peek() == ']' {
		r.pos++
		return nil
	}
	for i := 0; ; i++ {
		if err := element(i); err != nil {
			return err
		}
		if r.peek() == ',' {
			r.pos++
			continue
		}
		return r.expect(']')
	}
}

func (r *jsonReader) enter(c byte) error {
	if err := r.expect(c); err != nil {
		return err
	}
	if r.depth++; r.depth > jsonDepth {
		return r.fail("nested deeper than %d", jsonDepth)
	}
	return nil
}

func (r *jsonReader) leave() { r.depth-- }

// value reads anything: string, bool, int64, float64, nil, []any, map[string]any.
func (r *jsonReader) value() (any, error) {
	if r.count++; r.count > jsonValues {
		return nil, r.fail("more than %d values", jsonValues)
	}
	switch c := r.peek(); {
	case c == '{':
		m := map[string]any{}
		err := r.object(func(key string) error {
			v, err := r.value()
			m[key] = v
			return err
		})
		if err != nil {
			return nil, err
		}
		return untag(m)
	case c == '[':
		list := []any{}
		err := r.array(func(int) error {
			v, err := r.value()
			list = append(list, v)
			return err
		})
		return list, err
	case c == '"':
		return r.text()
	case c == '-' || c >= '0' && c <= '9':
		return r.number()
	case c == 0 && r.pos == len(r.buf):
		return nil, r.fail("the text ends where a value belongs")
	default:
		return r.literal()
	}
}

// skip consumes a value of any kind.
func (r *jsonReader) skip() error {
	_, err := r.value()
	return err
}

var literals = []struct {
	text  string
	value any
}{
	{"true", true},
	{"false", false},
	{"null", nil},
	{"NaN", math.NaN()},
	{"Infinity", math.Inf(1)},
	{"-Infinity", math.Inf(-1)},
}

func (r *jsonReader) literal() (any, error) {
	for _, l := range literals {
		if n := len(l.text); len(r.buf)-r.pos >= n && string(r.buf[r.pos:r.pos+n]) == l.text {
			r.pos += n
			return l.value, nil
		}
	}
	return nil, r.fail("found %q where a value belongs", r.buf[r.pos])
}

// number keeps integers exact as int64. One that does not fit, as tokenizer configs hold, becomes the nearest float64.
func (r *jsonReader) number() (any, error) {
	start := r.pos
	if r.buf[r.pos] == '-' {
		r.pos++
		if r.pos < len(r.buf) && r.buf[r.pos] == 'I' {
			r.pos = start
			return r.literal()
		}
	}
	whole := r.digits()
	if whole == 0 {
		return nil, r.fail("a number without digits")
	}
	if first := r.pos - whole; whole > 1 && r.buf[first] == '0' {
		return nil, r.fail("a number with a leading zero")
	}
	integer := true
	if r.pos < len(r.buf) && r.buf[r.pos] == '.' {
		integer = false
		r.pos++
		if r.digits() == 0 {
			return nil, r.fail("a number that ends in a point")
		}
	}
	if r.pos < len(r.buf) && (r.buf[r.pos] == 'e' || r.buf[r.pos] == 'E') {
		integer = false
		r.pos++
		if r.pos < len(r.buf) && (r.buf[r.pos] == '+' || r.buf[r.pos] == '-') {
			r.pos++
		}
		if r.digits() == 0 {
			return nil, r.fail("a number with an empty exponent")
		}
	}
	text := string(r.buf[start:r.pos])
	if integer {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, r.fail("number %s does not fit a float64", clip(text))
	}
	return f, nil
}

func (r *jsonReader) digits() int {
	start := r.pos
	for r.pos < len(r.buf) && r.buf[r.pos] >= '0' && r.buf[r.pos] <= '9' {
		r.pos++
	}
	return r.pos - start
}

// text reads a string.
func (r *jsonReader) text() (string, error) {
	if err := r.expect('"'); err != nil {
		return "", err
	}
	start := r.pos
	for r.pos < len(r.buf) {
		switch c := r.buf[r.pos]; {
		case c == '"':
			raw := r.buf[start:r.pos]
			if !utf8.Valid(raw) {
				return "", r.fail("a string that is not UTF-8")
			}
			r.pos++
			return string(raw), nil
		case c == '\\':
			return r.escaped(start)
		case c < 0x20:
			return "", r.fail("a control character in a string")
		default:
			r.pos++
		}
	}
	return "", r.fail("a string without an end")
}

var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escaped finishes a string whose first escape is at r.pos and whose text began at start.
func (r *jsonReader) escaped(start int) (string, error) {
	out := append([]byte(nil), r.buf[start:r.pos]...)
	for r.pos < len(r.buf) {
		c := r.buf[r.pos]
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				return "", r.fail("a string that is not UTF-8")
			}
			r.pos++
			return string(out), nil
		case c < 0x20:
			return "", r.fail("a control character in a string")
		case c != '\\':
			out = append(out, c)
			r.pos++
			continue
		}
		if r.pos++; r.pos == len(r.buf) {
			break
		}
		if e, ok := escapes[r.buf[r.pos]]; ok {
			out = append(out, e)
			r.pos++
			continue
		}
		if r.buf[r.pos] != 'u' {
			return "", r.fail("unknown escape \\%c", r.buf[r.pos])
		}
		char, err := r.unicode()
		if err != nil {
			return "", err
		}
		out = utf8.AppendRune(out, char)
	}
	return "", r.fail("a string without an end")
}

// unicode reads uXXXX, and the second half of a surrogate pair.
func (r *jsonReader) unicode() (rune, error) {
	first, err := r.hex()
	if err != nil || !utf16.IsSurrogate(first) {
		return first, err
	}
	if r.pos+1 < len(r.buf) && r.buf[r.pos] == '\\' && r.buf[r.pos+1] == 'u' {
		r.pos++
		second, err := r.hex()
		if err != nil {
			return 0, err
		}
		if pair := utf16.DecodeRune(first, second); pair != utf8.RuneError {
			return pair, nil
		}
	}
	return 0, r.fail("half of a surrogate pair")
}

// hex reads u and four digits at r.pos.
func (r *jsonReader) hex() (rune, error) {
	if len(r.buf)-r.pos < 5 {
		return 0, r.fail("a short \\u escape")
	}
	n, err := strconv.ParseUint(string(r.buf[r.pos+1:r.pos+5]), 16, 32)
	if err != nil {
		return 0, r.fail("a \\u escape that is not hexadecimal")
	}
	r.pos += 5
	return rune(n), nil
}

// untag turns {"__float__": "Infinity"} into the float it stands for.
func untag(m map[string]any) (any, error) {
	tag, ok := m[floatTag]
	if !ok || len(m) != 1 {
		return m, nil
	}
	text, ok := tag.(string)
	if !ok {
		return nil, fmt.Errorf("%s must hold a string", floatTag)
	}
	for _, l := range literals {
		if f, isFloat := l.value.(float64); isFloat && l.text == text {
			return f, nil
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("%s %q is not a number", floatTag, clip(text))
	}
	return f, nil
}

// floatTag marks a float that JSON cannot write, as mlx-lm's converters do.
const floatTag = "__float__"
