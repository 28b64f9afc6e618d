package chat

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/ardanlabs/jinja"
)

// pythonType is how Python names a value's type in an error.
func pythonType(v jinja.Value) string {
	switch {
	case v.IsNone():
		return "NoneType"
	case v.IsBool():
		return "bool"
	case v.IsInt():
		return "int"
	case v.IsFloat():
		return "float"
	case v.IsString():
		return "str"
	case v.IsList():
		return "list"
	case v.IsDict():
		return "dict"
	case v.IsUndefined():
		return "Undefined"
	}
	return "function"
}

// number is an int, or a float, or a bool that counts as an int.
type number struct {
	whole bool
	i     int64
	f     float64
}

func numberOf(v jinja.Value) (number, bool) {
	switch {
	case v.IsBool():
		n := number{whole: true}
		if v.AsBool() {
			n.i, n.f = 1, 1
		}
		return n, true
	case v.IsInt():
		return number{true, v.AsInt(), float64(v.AsInt())}, true
	case v.IsFloat():
		return number{f: v.AsFloat()}, true
	}
	return number{}, false
}

// fold computes a op b op c from the left, as Python does.
func (r *rendering) fold(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) > 3 && args[1].AsString() == "~" || len(args) > 3 && allStrings(args) {
		return r.concat(args)
	}
	out := args[0]
	for i := 1; i+1 < len(args); i += 2 {
		var err error
		if out, err = r.operate(out, args[i].AsString(), args[i+1]); err != nil {
			return out, err
		}
	}
	return out, nil
}

// allStrings reports a chain of + on strings, which is joined at once.
func allStrings(args []jinja.Value) bool {
	for i, a := range args {
		if !a.IsString() || i%2 == 1 && a.AsString() != "+" {
			return false
		}
	}
	return true
}

func (r *rendering) concat(args []jinja.Value) (jinja.Value, error) {
	var b strings.Builder
	for i := 0; i < len(args); i += 2 {
		if err := writeValue(&b, args[i], false, 0); err != nil {
			return jinja.Undefined(), err
		}
		if b.Len() > maxOutput {
			break
		}
	}
	return r.text(b.String())
}

func (r *rendering) operate(a jinja.Value, op string, b jinja.Value) (jinja.Value, error) {
	if op == "~" {
		return r.concat([]jinja.Value{a, {}, b})
	}
	x, isX := numberOf(a)
	y, isY := numberOf(b)
	switch {
	case isX && isY:
		return calculate(x, op, y)
	case op == "+" && a.IsString() && b.IsString():
		return r.text(a.AsString() + b.AsString())
	case op == "+" && a.IsList() && b.IsList():
		return r.list(slices.Concat(a.AsList().Items, b.AsList().Items))
	case op == "*" && isY && y.whole:
		return r.repeat(a, y.i)
	case op == "*" && isX && x.whole:
		return r.repeat(b, x.i)
	case op == "%" && a.IsString():
		return r.percent(a.AsString(), b)
	case a.IsUndefined() || b.IsUndefined():
		return jinja.Undefined(), fmt.Errorf("%s with a value that is undefined", op)
	}
	return jinja.Undefined(), fmt.Errorf("%s cannot join %s and %s", op, pythonType(a), pythonType(b))
}

func (r *rendering) repeat(v jinja.Value, n int64) (jinja.Value, error) {
	n = max(n, 0)
	size := int64(0)
	switch {
	case v.IsString():
		size = int64(len(v.AsString()))
	case v.IsList():
		size = int64(v.AsList().Len()) * valueBytes
	default:
		return jinja.Undefined(), fmt.Errorf("* cannot repeat %s", pythonType(v))
	}
	if size > 0 && n > maxOutput/size {
		return jinja.Undefined(), r.fail("asks for a value of more than %d bytes", maxOutput)
	}
	if v.IsString() {
		return r.text(strings.Repeat(v.AsString(), int(n)))
	}
	return r.list(slices.Repeat(v.AsList().Items, int(n)))
}

var errTooLarge = errors.New("a number is too large")

func calculate(x number, op string, y number) (jinja.Value, error) {
	if (op == "/" || op == "//" || op == "%") && y.f == 0 {
		return jinja.Undefined(), errors.New("division by zero")
	}
	if x.whole && y.whole && op != "/" && (op != "**" || y.i >= 0) {
		n, ok := whole(x.i, op, y.i)
		if !ok {
			return jinja.Undefined(), errTooLarge
		}
		return jinja.NewInt(n), nil
	}
	switch op {
	case "+":
		return jinja.NewFloat(x.f + y.f), nil
	case "-":
		return jinja.NewFloat(x.f - y.f), nil
	case "*":
		return jinja.NewFloat(x.f * y.f), nil
	case "/":
		return jinja.NewFloat(x.f / y.f), nil
	case "//":
		return jinja.NewFloat(math.Floor(x.f / y.f)), nil
	case "%":
		m := math.Mod(x.f, y.f)
		if m != 0 && (m < 0) != (y.f < 0) {
			m += y.f
		}
		return jinja.NewFloat(m), nil
	}
	return jinja.NewFloat(math.Pow(x.f, y.f)), nil
}

// whole computes on integers; false where Python's would not fit 64 bits.
func whole(x int64, op string, y int64) (int64, bool) {
	switch op {
	case "+":
		n := x + y
		return n, (n > x) == (y > 0)
	case "-":
		n := x - y
		return n, (n < x) == (y > 0)
	case "*":
		high, low := bits.Mul64(magnitude(x), magnitude(y))
		return x * y, high == 0 && low <= math.MaxInt64
	case "//", "%":
		if x == math.MinInt64 && y == -1 {
			return 0, false
		}
		q, m := x/y, x%y
		if m != 0 && (m < 0) != (y < 0) { // Python rounds down
			q, m = q-1, m+y
		}
		if op == "//" {
			return q, true
		}
		return m, true
	}
	n, ok := int64(1), true
	for range min(y, 64) {
		if n, ok = whole(n, "*", x); !ok {
			return 0, false
		}
	}
	if y > 64 && x != 0 && x != 1 && x != -1 {
		return 0, false
	}
	if y > 64 && x == -1 && y%2 == 1 {
		n = -1
	}
	return n, true
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return uint64(-n)
	}
	return uint64(n)
}

func (r *rendering) negate(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	n, ok := numberOf(args[0])
	switch {
	case !ok:
		return jinja.Undefined(), fmt.Errorf("a minus before %s", pythonType(args[0]))
	case n.whole:
		return jinja.NewInt(-n.i), nil
	}
	return jinja.NewFloat(-n.f), nil
}

// in is Python's `a in b`.
func (r *rendering) in(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	item, of := args[0], args[1]
	switch {
	case of.IsUndefined():
		return jinja.NewBool(false), nil
	case of.IsString():
		if !item.IsString() {
			return jinja.Undefined(), fmt.Errorf("'in' wants str as left operand, not %s", pythonType(item))
		}
		return jinja.NewBool(strings.Contains(of.AsString(), item.AsString())), nil
	case of.IsDict():
		return jinja.NewBool(item.IsString() && of.AsDict().Has(item.AsString())), nil
	case of.IsList():
		return jinja.NewBool(slices.ContainsFunc(of.AsList().Items, func(v jinja.Value) bool { return equal(v, item) })), nil
	}
	return jinja.Undefined(), fmt.Errorf("%s is not iterable", pythonType(of))
}

func equal(a, b jinja.Value) bool {
	x, isX := numberOf(a)
	y, isY := numberOf(b)
	if isX && isY {
		return x.f == y.f && (!x.whole || !y.whole || x.i == y.i)
	}
	return a.Equals(b)
}

// percent is Python's formatting by %, for the directives that templates use.
func (r *rendering) percent(format string, v jinja.Value) (jinja.Value, error) {
	values := []jinja.Value{v}
	if v.IsList() {
		values = v.AsList().Items
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		if format[i] == '%' {
			b.WriteByte('%')
			continue
		}
		if len(values) == 0 {
			return jinja.Undefined(), errors.New("not enough values for a format")
		}
		n, isNumber := numberOf(values[0])
		switch c := format[i]; {
		case c == 's' || c == 'r':
			if err := writeValue(&b, values[0], c == 'r', 0); err != nil {
				return jinja.Undefined(), err
			}
		case (c == 'd' || c == 'i') && isNumber && n.whole:
			fmt.Fprint(&b, n.i)
		case (c == 'd' || c == 'i') && isNumber:
			fmt.Fprint(&b, int64(n.f))
		case c == 'f' && isNumber:
			fmt.Fprintf(&b, "%f", n.f)
		default:
			return jinja.Undefined(), fmt.Errorf("%%%c of %s is not understood", c, pythonType(values[0]))
		}
		values = values[1:]
		if b.Len() > maxOutput {
			break
		}
	}
	return r.text(b.String())
}
