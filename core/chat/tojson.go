package chat

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// jsonStyle is how Python's json.dumps was asked to write.
type jsonStyle struct {
	ascii, sort bool
	pretty      bool
	indent      string
	item, key   string // separators
}

// toJSON is the tojson filter of transformers: json.dumps with ensure_ascii=False.
func toJSON(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	if len(args) == 0 {
		return jinja.Undefined(), errors.New("tojson: there is no value")
	}
	// The positional order of transformers' function.
	for i, name := range []string{"ensure_ascii", "indent", "separators", "sort_keys"} {
		if i+1 < len(args) {
			if kwargs == nil {
				kwargs = map[string]jinja.Value{}
			}
			kwargs[name] = args[i+1]
		}
	}
	st, err := newJSONStyle(kwargs)
	if err != nil {
		return jinja.Undefined(), err
	}
	var b strings.Builder
	if err := st.write(&b, args[0], 0); err != nil {
		return jinja.Undefined(), err
	}
	return jinja.NewString(b.String()), nil
}

func newJSONStyle(kwargs map[string]jinja.Value) (jsonStyle, error) {
	st := jsonStyle{item: ", ", key: ": "}
	for name, v := range kwargs {
		switch name {
		case "ensure_ascii":
			st.ascii = v.IsTruthy()
		case "sort_keys":
			st.sort = v.IsTruthy()
		case "indent":
			switch {
			case v.IsInt():
				st.pretty, st.indent = true, strings.Repeat(" ", int(min(max(v.AsInt(), 0), 64)))
			case v.IsString():
				st.pretty, st.indent = true, v.AsString()
			case !v.IsNone():
				return st, errors.New("tojson: indent must be a number or a string")
			}
		case "separators":
		default:
			return st, fmt.Errorf("tojson: there is no option %s", name)
		}
	}
	if st.pretty {
		st.item = ","
	}
	if v, ok := kwargs["separators"]; ok && !v.IsNone() {
		if !v.IsList() || v.AsList().Len() != 2 || !v.AsList().Get(0).IsString() || !v.AsList().Get(1).IsString() {
			return st, errors.New("tojson: separators must be two strings")
		}
		st.item, st.key = v.AsList().Get(0).AsString(), v.AsList().Get(1).AsString()
	}
	return st, nil
}

func (st *jsonStyle) write(b *strings.Builder, v jinja.Value, depth int) error {
	switch {
	case depth > maxDepth:
		return fmt.Errorf("tojson: the value is nested more than %d deep", maxDepth)
	case v.IsNone():
		b.WriteString("null")
	case v.IsBool():
		b.WriteString(strconv.FormatBool(v.AsBool()))
	case v.IsInt():
		b.WriteString(strconv.FormatInt(v.AsInt(), 10))
	case v.IsFloat():
		b.WriteString(pythonFloat(v.AsFloat()))
	case v.IsString():
		st.quote(b, v.AsString())
	case v.IsList():
		return st.writeAll(b, '[', ']', v.AsList().Len(), depth, func(i int) error {
			return st.write(b, v.AsList().Get(i), depth+1)
		})
	case v.IsDict():
		d := v.AsDict()
		keys := d.Keys
		if st.sort {
			keys = slices.Sorted(slices.Values(keys))
		}
		return st.writeAll(b, '{', '}', len(keys), depth, func(i int) error {
			st.quote(b, keys[i])
			b.WriteString(st.key)
			return st.write(b, d.Data[keys[i]], depth+1)
		})
	default:
		return errors.New("tojson: the value is undefined or a function")
	}
	return nil
}

func (st *jsonStyle) writeAll(b *strings.Builder, open, end byte, n, depth int, each func(int) error) error {
	b.WriteByte(open)
	for i := range n {
		if i > 0 {
			b.WriteString(st.item)
		}
		st.line(b, depth+1)
		if err := each(i); err != nil {
			return err
		}
		if b.Len() > maxOutput {
			return fmt.Errorf("tojson: the text is longer than %d bytes", maxOutput)
		}
	}
	if n > 0 {
		st.line(b, depth)
	}
	b.WriteByte(end)
	return nil
}

func (st *jsonStyle) line(b *strings.Builder, depth int) {
	if st.pretty {
		b.WriteByte('\n')
		b.WriteString(strings.Repeat(st.indent, depth))
	}
}

var jsonEscapes = map[rune]string{
	'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`,
}

func (st *jsonStyle) quote(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		esc, ok := jsonEscapes[r]
		switch {
		case ok:
			b.WriteString(esc)
		case r < 0x20 || st.ascii && r > 0x7E && r <= 0xFFFF:
			fmt.Fprintf(b, `\u%04x`, r)
		case st.ascii && r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

// pythonFloat is Python's repr of a float, with json.dumps's names for what is not finite.
func pythonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
