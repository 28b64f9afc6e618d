package chat

import (
	"errors"
	"math"
	"strings"

	"github.com/ardanlabs/jinja"
)

// ourFilter is a filter that the library has in another form than Python; rewrite gives it our name.
type ourFilter struct {
	name string
	fn   function
}

var ourFilters = map[string]ourFilter{
	"tojson": {"clade_tojson", toJSON},
	"round":  {"clade_round", roundFilter},
	"string": {"clade_string", printFilter},
}

// printFilter is Python's str, which {{ }} prints.
func printFilter(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) == 1 && args[0].IsString() {
		return args[0], nil
	}
	var b strings.Builder
	for i, a := range args {
		if i > 0 {
			b.WriteString(", ")
		}
		if err := writeValue(&b, a, len(args) > 1, 0); err != nil {
			return jinja.Undefined(), err
		}
	}
	if len(args) > 1 {
		return jinja.NewString("(" + b.String() + ")"), nil
	}
	return jinja.NewString(b.String()), nil
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

// roundFilter is jinja2's round: Python's banker's rounding for "common", a float in any case.
func roundFilter(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	options := map[string]jinja.Value{"precision": jinja.NewInt(0), "method": jinja.NewString("common")}
	for i, name := range []string{"precision", "method"} {
		if i+1 < len(args) {
			options[name] = args[i+1]
		}
		if v, ok := kwargs[name]; ok {
			options[name] = v
		}
	}
	if len(args) == 0 || !args[0].IsNumber() || !options["precision"].IsInt() || !options["method"].IsString() {
		return jinja.Undefined(), errors.New("round takes a number, a precision and a method")
	}
	x := 0.0
	if args[0].IsInt() {
		x = float64(args[0].AsInt())
	} else {
		x = args[0].AsFloat()
	}
	scale := math.Pow(10, float64(options["precision"].AsInt()))
	switch options["method"].AsString() {
	case "common":
		x = math.RoundToEven(x*scale) / scale
	case "ceil":
		x = math.Ceil(x*scale) / scale
	case "floor":
		x = math.Floor(x*scale) / scale
	default:
		return jinja.Undefined(), errors.New("round: the method is common, ceil or floor")
	}
	if args[0].IsInt() && options["method"].AsString() == "common" {
		return jinja.NewInt(int64(x)), nil
	}
	return jinja.NewFloat(x), nil
}
