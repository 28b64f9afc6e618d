package chat

import (
	"fmt"
	"slices"
	"strings"
)

// expression rewrites the tokens of one expression by jinja2's grammar, so that what the library computes in another way than
// Python, or without bound, is computed by our functions (functions.go): operators, attributes, items, slices, methods, comparisons,
// filters and tests. What is left to the library is names, literals, and, or, not and the choice by if.
type expression struct {
	tokens []token
	i      int
	line   int
	depth  int
	err    error
	names  map[string]string // what stands for a name, in a loop's condition
}

func (x *expression) fail(format string, args ...any) {
	if x.err == nil {
		x.err = fmt.Errorf(format, args...)
	}
}

func (x *expression) peek() token {
	if x.err != nil || x.i >= len(x.tokens) {
		return token{}
	}
	return x.tokens[x.i]
}

// take moves on if the next token is a sign or word of that text.
func (x *expression) take(text string) bool {
	t := x.peek()
	if t.text == text && (t.kind == signToken || t.kind == wordToken) {
		x.i++
		return true
	}
	return false
}

func (x *expression) expect(text string) {
	if !x.take(text) {
		x.unexpected("want " + text)
	}
}

func (x *expression) unexpected(want string) {
	if t := x.peek(); t.text != "" {
		x.fail("found %q, %s", t.text, want)
		return
	}
	x.fail("an expression ends too early: %s", want)
}

// end says that all was read.
func (x *expression) end() error {
	if x.err == nil && x.i < len(x.tokens) {
		x.unexpected("want the end of the tag")
	}
	return x.err
}

// nested runs a rule that recurs. The library's parser and evaluator recur as deep.
func (x *expression) nested(rule func() string) string {
	if x.depth++; x.depth > maxBrackets {
		x.fail("an expression is nested more than %d deep", maxBrackets)
	}
	defer func() { x.depth-- }()
	if x.err != nil {
		return ""
	}
	return rule()
}

// value is a whole expression, or a tuple without brackets.
func (x *expression) value() string {
	first := x.choice()
	if x.peek().text != "," {
		return first
	}
	items := []string{first}
	for x.take(",") && x.peek().kind != 0 {
		items = append(items, x.choice())
	}
	return "[" + strings.Join(items, ", ") + "]"
}

func (x *expression) choice() string {
	return x.nested(func() string {
		out := x.or()
		for x.take("if") {
			condition := x.or()
			if x.take("else") {
				out = "(" + out + " if " + condition + " else " + x.choice() + ")"
			} else {
				out = "(" + out + " if " + condition + ")"
			}
		}
		return out
	})
}

// terms joins what next reads with a word.
func (x *expression) terms(word string, next func() string) string {
	terms := []string{next()}
	for x.take(word) {
		terms = append(terms, next())
	}
	if len(terms) == 1 {
		return terms[0]
	}
	if len(terms) > maxTerms {
		x.fail("an expression has more than %d terms", maxTerms)
	}
	return "(" + strings.Join(terms, " "+word+" ") + ")"
}

func (x *expression) or() string  { return x.terms("or", x.and) }
func (x *expression) and() string { return x.terms("and", x.not) }

func (x *expression) not() string {
	if x.take("not") {
		return "(not " + x.nested(x.not) + ")"
	}
	return x.comparison()
}

var comparisons = []string{"==", "!=", "<", ">", "<=", ">="}

// comparison writes a < b < c as (a < b and b < c).
func (x *expression) comparison() string {
	left := x.fold(0)
	var out []string
	for {
		t := x.peek()
		var right string
		switch {
		case t.kind == signToken && slices.Contains(comparisons, t.text):
			x.i++
			right = x.fold(0)
			out = append(out, testName+`("`+t.text+`", `+left+", "+right+")")
		case x.take("in"):
			right = x.fold(0)
			out = append(out, inName+"("+left+", "+right+")")
		case t.text == "not" && x.i+1 < len(x.tokens) && x.tokens[x.i+1].text == "in":
			x.i += 2
			right = x.fold(0)
			out = append(out, "(not "+inName+"("+left+", "+right+"))")
		case len(out) == 0:
			return left
		default:
			if len(out) > maxTerms {
				x.fail("an expression has more than %d terms", maxTerms)
			}
			return "(" + strings.Join(out, " and ") + ")"
		}
		left = right
	}
}

// levels are the operators, those that bind least first.
var levels = [][]string{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}

// fold writes a chain of operators of one level as one call.
func (x *expression) fold(level int) string {
	if level == len(levels) {
		return x.nested(func() string { return x.unary(true) })
	}
	parts := []string{x.fold(level + 1)}
	for {
		t := x.peek()
		if t.kind != signToken || !slices.Contains(levels[level], t.text) {
			break
		}
		x.i++
		parts = append(parts, `"`+t.text+`"`, x.fold(level+1))
	}
	if len(parts) == 1 {
		return parts[0]
	}
	if len(parts) > 2*maxTerms {
		x.fail("an expression has more than %d terms", maxTerms)
	}
	return foldName + "(" + strings.Join(parts, ", ") + ")"
}

func (x *expression) unary(filtered bool) string {
	var out string
	switch {
	case x.take("-"):
		out = negName + "(" + x.nested(func() string { return x.unary(false) }) + ")"
	case x.take("+"):
		out = x.nested(func() string { return x.unary(false) })
	default:
		out = x.postfix(x.primary())
	}
	if filtered {
		out = x.filters(out)
	}
	return out
}

func (x *expression) primary() string {
	t := x.peek()
	switch t.kind {
	case wordToken:
		x.i++
		if reserved[t.text] {
			x.i--
			x.unexpected("want a value")
		}
		if t.text == "raise_exception" && x.peek().text == "(" && x.i+1 < len(x.tokens) && x.tokens[x.i+1].text != ")" {
			x.i++
			return raiseName + "(" + fmt.Sprint(x.line) + ", " + x.arguments()
		}
		if as, ok := x.names[t.text]; ok {
			return as
		}
		if t.text == "dict" && x.peek().text == "(" && x.i+2 < len(x.tokens) && x.tokens[x.i+2].text == "=" {
			x.i++
			return x.keywords()
		}
		return t.text
	case numberToken:
		x.i++
		return t.text
	case textToken:
		x.i++
		parts := []string{t.text}
		for ; x.peek().kind == textToken; x.i++ { // Python joins literals that stand side by side
			parts = append(parts, `"+"`, x.peek().text)
		}
		switch {
		case len(parts) == 1:
			return t.text
		case len(parts) > 2*maxTerms:
			x.fail("more than %d literals stand side by side", maxTerms)
		}
		return foldName + "(" + strings.Join(parts, ", ") + ")"
	}
	switch {
	case x.take("("):
		return x.tuple()
	case x.take("["):
		return "[" + x.list("]") + "]"
	case x.take("{"):
		return x.dict()
	}
	x.unexpected("want a value")
	return ""
}

// reserved words begin no value.
var reserved = map[string]bool{"if": true, "else": true, "and": true, "or": true, "in": true, "is": true, "not": true}

func (x *expression) tuple() string {
	if x.take(")") {
		return "[]"
	}
	first := x.choice()
	if x.take(")") {
		return "(" + first + ")"
	}
	x.expect(",")
	items := []string{first}
	if x.peek().text != ")" {
		items = append(items, x.list(")"))
		return "[" + strings.Join(items, ", ") + "]"
	}
	x.expect(")")
	return "[" + first + "]"
}

// list reads values up to a closing.
func (x *expression) list(closing string) string {
	var items []string
	for x.err == nil && !x.take(closing) {
		items = append(items, x.choice())
		if x.peek().text != closing {
			x.expect(",")
		}
	}
	return strings.Join(items, ", ")
}

func (x *expression) dict() string {
	var items []string
	for x.err == nil && !x.take("}") {
		key := x.choice()
		x.expect(":")
		items = append(items, key+": "+x.choice())
		if x.peek().text != "}" {
			x.expect(",")
		}
	}
	return "{" + strings.Join(items, ", ") + " }" // the library takes "}}" for the end of the tag
}

// keywords writes dict(a=1, b=2) as a mapping: the library would lose the order.
func (x *expression) keywords() string {
	var items []string
	for x.err == nil && !x.take(")") {
		key := x.peek().text
		x.i++
		x.expect("=")
		items = append(items, `"`+key+`": `+x.choice())
		if x.peek().text != ")" {
			x.expect(",")
		}
	}
	return "{" + strings.Join(items, ", ") + " }"
}

// arguments reads a call's arguments behind its bracket and writes them with the closing one.
func (x *expression) arguments() string {
	var args []string
	for x.err == nil && !x.take(")") {
		arg := ""
		if x.peek().kind == wordToken && x.i+1 < len(x.tokens) && x.tokens[x.i+1].text == "=" {
			arg = x.peek().text + "="
			x.i += 2
		}
		args = append(args, arg+x.choice())
		if x.peek().text != ")" {
			x.expect(",")
		}
	}
	return strings.Join(args, ", ") + ")"
}
