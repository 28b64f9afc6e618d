package family

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/clademl/clade/sdk/artifact"
)

// Clause compares the value at Path with Value, or with the value at the path Other.
//
// A path reads the canonical config (after from, rename, defaults and derive); "$.x" reads the config as written, "@.x"
// the generation config. A null value counts as absent, and an absent value fails every op but absent and the negated ones.
type Clause struct {
	Path  string `yaml:"path" json:"path"`
	Op    Op     `yaml:"op" json:"op"`
	Value any    `yaml:"value,omitempty" json:"value,omitempty"`
	Other string `yaml:"other,omitempty" json:"other,omitempty"`
}

// Require is a Clause that a recognised model must meet; Message says why. When names a path; while that is absent the
// requirement does not apply.
type Require struct {
	Clause  `yaml:",inline"`
	When    string `yaml:"when,omitempty" json:"when,omitempty"`
	Message string `yaml:"message" json:"message"`
	// Kind is artifact-corrupt (the default: the file breaks its own rules) or unsupported-model (a variant that the
	// family does not run).
	Kind string `yaml:"kind,omitempty" json:"kind,omitempty"`
}

// Op is a comparison of the closed list below.
type Op string

// operator is one row: what it needs beside the path, how it decides, how it reads.
type operator struct {
	operand operand
	holds   func(have any, want any) bool
	words   string
}

type operand int

const (
	noOperand operand = iota
	anyOperand
	listOperand
	textOperand
	numberOperand
)

// ops is the closed list.
var ops = map[Op]operator{
	"exists":       {noOperand, func(have, _ any) bool { return have != nil }, "%s"},
	"absent":       {noOperand, func(have, _ any) bool { return have == nil }, "no %s"},
	"eq":           {anyOperand, equal, "%s %s"},
	"ne":           {anyOperand, func(h, w any) bool { return !equal(h, w) }, "%s other than %s"},
	"in":           {listOperand, within, "%s one of %s"},
	"not_in":       {listOperand, func(h, w any) bool { return !within(h, w) }, "%s none of %s"},
	"each_in":      {listOperand, eachWithin, "%s with elements of %s"},
	"prefix":       {textOperand, text(strings.HasPrefix), "%s beginning with %s"},
	"suffix":       {textOperand, text(strings.HasSuffix), "%s ending in %s"},
	"contains":     {textOperand, text(strings.Contains), "%s containing %s"},
	"not_contains": {textOperand, func(h, w any) bool { return !text(strings.Contains)(h, w) }, "%s without %s"},
	"type":         {textOperand, ofType, "%s to be of type %s"},
	"ge":           {numberOperand, order(func(a, b float64) bool { return a >= b }), "%s at least %s"},
	"gt":           {numberOperand, order(func(a, b float64) bool { return a > b }), "%s above %s"},
	"le":           {numberOperand, order(func(a, b float64) bool { return a <= b }), "%s at most %s"},
	"lt":           {numberOperand, order(func(a, b float64) bool { return a < b }), "%s below %s"},
	"length":       {numberOperand, lengthIs, "%s of length %s"},
	"min_length":   {numberOperand, lengthAtLeast, "%s of length at least %s"},
	"multiple_of":  {numberOperand, multiple, "%s to be a multiple of %s"},
}

// types that op type knows.
var valueTypes = map[string]func(any) bool{
	"integer": func(v any) bool { _, ok := v.(int64); return ok },
	"number":  func(v any) bool { _, ok := number(v); return ok },
	"string":  func(v any) bool { _, ok := v.(string); return ok },
	"boolean": func(v any) bool { _, ok := v.(bool); return ok },
	"list":    func(v any) bool { _, ok := v.([]any); return ok },
	"object":  func(v any) bool { _, ok := v.(map[string]any); return ok },
}

func (c *Clause) check() error {
	op, ok := ops[c.Op]
	switch {
	case c.Path == "":
		return fmt.Errorf("path: is empty")
	case !ok:
		return fmt.Errorf("%s: op %q is unknown", c.Path, c.Op)
	case op.operand == noOperand && (c.Value != nil || c.Other != ""):
		return fmt.Errorf("%s: op %s takes no value", c.Path, c.Op)
	case op.operand == noOperand:
		return nil
	case (c.Value != nil) == (c.Other != ""):
		return fmt.Errorf("%s: op %s needs a value or another path, one of them", c.Path, c.Op)
	}
	v, err := normal(c.Value)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Path, err)
	}
	c.Value = v
	if c.Other != "" {
		return nil
	}
	_, isText := v.(string)
	_, isList := v.([]any)
	_, isNumber := number(v)
	if op.operand == textOperand && !isText || op.operand == listOperand && !isList || op.operand == numberOperand && !isNumber {
		return fmt.Errorf("%s: op %s cannot compare with %v", c.Path, c.Op, v)
	}
	if _, known := valueTypes[fmt.Sprint(v)]; c.Op == "type" && !known {
		return fmt.Errorf("%s: type %v is unknown", c.Path, v)
	}
	return nil
}

func (r *Require) check() error {
	if r.Message == "" {
		return fmt.Errorf("%s: message: is empty", r.Path)
	}
	if err := oneOf("kind", r.Kind, "", "artifact-corrupt", "unsupported-model"); err != nil {
		return err
	}
	return r.Clause.check()
}

// holds decides the clause over v.
func (c *Clause) holds(v view) bool {
	want := c.Value
	if c.Other != "" {
		want = v.at(c.Other)
		if want == nil {
			return false
		}
	}
	return ops[c.Op].holds(v.at(c.Path), want)
}

// words is the clause as a person would say it: "hidden_size 1536, this has 1537".
func (c *Clause) words(v view) string {
	want := show(c.Value)
	if c.Other != "" {
		want = fmt.Sprintf("%s (%s)", c.Other, show(v.at(c.Other)))
	}
	op := ops[c.Op]
	path := strings.TrimPrefix(c.Path, "$.")
	said := fmt.Sprintf(op.words, path)
	if op.operand != noOperand {
		said = fmt.Sprintf(op.words, path, want)
	}
	if have := v.at(c.Path); have != nil {
		return said + ", this has " + show(have)
	}
	return said + ", this has none"
}

func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []any:
		parts := make([]string, 0, len(v))
		for i, e := range v {
			if i == 8 {
				parts = append(parts, fmt.Sprintf("... (%d in all)", len(v)))
				break
			}
			parts = append(parts, show(e))
		}
		return strings.Join(parts, ", ")
	case map[string]any:
		return "an object"
	}
	return fmt.Sprint(v)
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func equal(have, want any) bool {
	if a, ok := have.(int64); ok {
		if b, ok := want.(int64); ok {
			return a == b
		}
	}
	if a, ok := number(have); ok {
		b, ok := number(want)
		return ok && a == b
	}
	switch have.(type) {
	case string, bool:
		return have == want
	}
	return false
}

func within(have, want any) bool {
	list, _ := want.([]any)
	for _, w := range list {
		if equal(have, w) {
			return true
		}
	}
	return false
}

func eachWithin(have, want any) bool {
	list, ok := have.([]any)
	for _, e := range list {
		ok = ok && within(e, want)
	}
	return ok
}

func text(f func(s, t string) bool) func(have, want any) bool {
	return func(have, want any) bool {
		s, ok := have.(string)
		t, ok2 := want.(string)
		return ok && ok2 && f(s, t)
	}
}

func ofType(have, want any) bool {
	name, _ := want.(string)
	is, ok := valueTypes[name]
	return ok && is(have)
}

func order(f func(a, b float64) bool) func(have, want any) bool {
	return func(have, want any) bool {
		a, ok := number(have)
		b, ok2 := number(want)
		return ok && ok2 && f(a, b)
	}
}

func lengthIs(have, want any) bool {
	list, ok := have.([]any)
	return ok && equal(int64(len(list)), want)
}

func lengthAtLeast(have, want any) bool {
	list, ok := have.([]any)
	n, ok2 := number(want)
	return ok && ok2 && float64(len(list)) >= n
}

func multiple(have, want any) bool {
	a, ok := have.(int64)
	b, ok2 := want.(int64)
	return ok && ok2 && b > 0 && a%b == 0
}

// normal brings a value read from YAML to the types of a Config.
func normal(v any) (any, error) {
	switch v := v.(type) {
	case nil, string, bool, int64, float64:
		return v, nil
	case int:
		return int64(v), nil
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			n, err := normal(e)
			if err != nil {
				return nil, err
			}
			out[i] = n
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			n, err := normal(e)
			if err != nil {
				return nil, err
			}
			out[k] = n
		}
		return out, nil
	}
	return nil, fmt.Errorf("a value of type %T cannot stand in a record", v)
}

// view is what a path reads: the canonical config, the config as written, the generation config.
type view struct {
	canon, raw, generation artifact.Config
}

func (v view) at(path string) any {
	from := v.canon
	switch {
	case strings.HasPrefix(path, "$."):
		from, path = v.raw, path[2:]
	case strings.HasPrefix(path, "@."):
		from, path = v.generation, path[2:]
	}
	got, _ := from.Lookup(path)
	return got
}
