package chat

import (
	"fmt"
	"strings"

	"github.com/ardanlabs/jinja"
)

// knownTests are jinja2's tests, by Python's types.
var knownTests = map[string]func(v jinja.Value) bool{
	"defined":   func(v jinja.Value) bool { return !v.IsUndefined() },
	"undefined": func(v jinja.Value) bool { return v.IsUndefined() },
	"none":      func(v jinja.Value) bool { return v.IsNone() },
	"boolean":   func(v jinja.Value) bool { return v.IsBool() },
	"true":      func(v jinja.Value) bool { return v.IsBool() && v.AsBool() },
	"false":     func(v jinja.Value) bool { return v.IsBool() && !v.AsBool() },
	"integer":   func(v jinja.Value) bool { return v.IsInt() },
	"float":     func(v jinja.Value) bool { return v.IsFloat() },
	"number":    func(v jinja.Value) bool { return v.IsNumber() || v.IsBool() },
	"string":    func(v jinja.Value) bool { return v.IsString() },
	"mapping":   func(v jinja.Value) bool { return v.IsDict() },
	"sequence":  func(v jinja.Value) bool { return v.IsString() || v.IsList() || v.IsDict() || v.IsUndefined() },
	"iterable":  func(v jinja.Value) bool { return v.IsString() || v.IsList() || v.IsDict() || v.IsUndefined() },
	"callable":  func(v jinja.Value) bool { return v.IsCallable() },
	"odd":       func(v jinja.Value) bool { n, ok := numberOf(v); return ok && n.i%2 != 0 },
	"even":      func(v jinja.Value) bool { n, ok := numberOf(v); return ok && n.i%2 == 0 },
	"upper":     func(v jinja.Value) bool { return v.IsString() && characterTests["isupper"](v.AsString()) },
	"lower":     func(v jinja.Value) bool { return v.IsString() && characterTests["islower"](v.AsString()) },
	"escaped":   func(jinja.Value) bool { return false },
}

// comparing are the tests that take a value, as the operators that they are.
var comparing = map[string]string{
	"eq": "==", "equalto": "==", "sameas": "==", "ne": "!=", "lt": "<", "lessthan": "<", "le": "<=", "gt": ">", "greaterthan": ">", "ge": ">=",
	"in": "in", "divisibleby": "%",
}

// runTest is args[0] is name(args[1]).
func runTest(name string, args []jinja.Value) (bool, error) {
	if fn := knownTests[name]; fn != nil {
		return fn(args[0]), nil
	}
	op := comparing[name]
	if strings.Trim(name, "<>=!") == "" {
		op = name
	}
	if op == "" {
		return false, fmt.Errorf("there is no test %s", name)
	}
	if len(args) < 2 {
		return false, fmt.Errorf("the test %s wants a value", name)
	}
	a, b := args[0], args[1]
	switch op {
	case "==":
		return equal(a, b), nil
	case "!=":
		return !equal(a, b), nil
	case "in":
		v, err := (&rendering{}).in([]jinja.Value{a, b}, nil)
		return v.IsTruthy(), err
	case "%":
		x, isX := numberOf(a)
		y, isY := numberOf(b)
		return isX && isY && y.i != 0 && x.i%y.i == 0, nil
	}
	n, err := order(a, b, true)
	return op == "<" && n < 0 || op == "<=" && n <= 0 || op == ">" && n > 0 || op == ">=" && n >= 0, err
}

func (r *rendering) test(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	yes, err := runTest(args[0].AsString(), args[1:])
	return jinja.NewBool(yes), err
}
