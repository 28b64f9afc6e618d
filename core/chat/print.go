package chat

import (
	"errors"
	"strings"

	"github.com/ardanlabs/jinja"
)

// print is what {{ }} writes: Python's str.
func (r *rendering) print(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) == 1 && args[0].IsString() {
		r.written += len(args[0].AsString())
		if r.written > maxWritten {
			return jinja.Undefined(), r.fail("writes more than %d bytes", maxWritten)
		}
		return args[0], r.charge(len(args[0].AsString()))
	}
	s, err := r.str(args[0])
	r.written += len(s)
	return jinja.NewString(s), err
}

// writeValue writes str(v), or repr(v) where it is an element.
func writeValue(b *strings.Builder, v jinja.Value, element bool, depth int) error {
	switch {
	case depth > maxDepth:
		return errors.New("a value to print is nested too deep")
	case b.Len() > maxOutput:
		return errors.New("a value to print is too long")
	case v.IsUndefined():
		if element {
			b.WriteString("Undefined")
		}
	case v.IsString():
		if element {
			writeRepr(b, v.AsString())
		} else {
			b.WriteString(v.AsString())
		}
	case v.IsFloat():
		b.WriteString(strings.NewReplacer("Infinity", "inf", "NaN", "nan").Replace(pythonFloat(v.AsFloat())))
	case v.IsList():
		b.WriteByte('[')
		for i, item := range v.AsList().Items {
			if i > 0 {
				b.WriteString(", ")
			}
			if err := writeValue(b, item, true, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case v.IsDict():
		b.WriteByte('{')
		for i, key := range v.AsDict().Keys {
			if i > 0 {
				b.WriteString(", ")
			}
			writeRepr(b, key)
			b.WriteString(": ")
			if err := writeValue(b, v.AsDict().Data[key], true, depth+1); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	default:
		b.WriteString(v.String()) // None, True, False, integers, functions
	}
	return nil
}
