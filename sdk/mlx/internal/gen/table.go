package main

import (
	"fmt"
	"strings"
)

// api is the parsed table.
type api struct {
	handles []string
	enums   []enum
	types   []string // verbatim typedefs
	decls   []string // handles, enums and typedefs in table order, as C
	funcs   []function
}

type enum struct {
	name   string
	values []string
}

type function struct {
	header   string
	ret      string
	name     string
	params   []param
	optional bool
}

type param struct {
	typ      string // C type without const, such as "mlx_array*"; empty for a function pointer
	name     string
	decl     string // the C declaration
	nullable bool
}

func parseTable(text string) (*api, error) {
	a := &api{}
	header := ""
	for i, line := range strings.Split(text, "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "", "#":
		case "header":
			header = rest
		case "handle":
			a.handles = append(a.handles, rest)
			a.decls = append(a.decls, fmt.Sprintf("typedef struct %s_ { void *ctx; } %s;", rest, rest))
		case "enum":
			name, vals, _ := strings.Cut(rest, " ")
			a.enums = append(a.enums, enum{name: name, values: strings.Split(vals, ", ")})
			a.decls = append(a.decls, fmt.Sprintf("typedef enum %s_ { %s } %s;", name, vals, name))
		case "type":
			a.types = append(a.types, rest)
			a.decls = append(a.decls, rest+";")
		case "func", "optional":
			f, err := parseFunc(rest)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			f.header, f.optional = header, kind == "optional"
			a.funcs = append(a.funcs, f)
		default:
			return nil, fmt.Errorf("line %d: unknown kind %q", i+1, kind)
		}
	}
	return a, nil
}

func parseFunc(text string) (function, error) {
	m := funcDecl.FindStringSubmatch(text)
	if m == nil {
		return function{}, fmt.Errorf("not a function: %q", text)
	}
	f := function{ret: halfType(m[1]), name: m[2]}
	for i, p := range splitParams(m[3]) {
		pr, err := parseParam(p, i)
		if err != nil {
			return function{}, fmt.Errorf("%s: %w", f.name, err)
		}
		f.params = append(f.params, pr)
	}
	return f, nil
}

func splitParams(s string) []string {
	if s == "" || s == "void" {
		return nil
	}
	var out []string
	depth, from := 0, 0
	for i, r := range s {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, strings.TrimSpace(s[from:i]))
				from = i + 1
			}
		}
	}
	return append(out, strings.TrimSpace(s[from:]))
}

func parseParam(s string, i int) (param, error) {
	nullable := strings.HasSuffix(s, "?")
	s = strings.TrimSuffix(s, "?")
	if _, rest, ok := strings.Cut(s, "(*"); ok {
		name, _, _ := strings.Cut(rest, ")")
		return param{name: name, decl: s, nullable: nullable}, nil
	}
	cut := strings.LastIndexAny(s, " *")
	if cut < 0 {
		return param{}, fmt.Errorf("parameter %d has no name: %q", i, s)
	}
	typ := halfType(strings.TrimSpace(s[:cut+1]))
	p := param{typ: strings.TrimPrefix(typ, "const "), name: s[cut+1:], nullable: nullable}
	p.decl = typ + " " + p.name
	return p, nil
}

// halfType replaces the compiler-specific half types, which travel as their 16 bits.
func halfType(t string) string {
	return strings.ReplaceAll(strings.ReplaceAll(t, "bfloat16_t", "uint16_t"), "float16_t", "uint16_t")
}
