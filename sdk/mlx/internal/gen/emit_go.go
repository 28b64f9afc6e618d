package main

import (
	"bytes"
	"fmt"
	"strings"
)

func emitGo(ops []op) []byte {
	var b bytes.Buffer
	b.WriteString(marker)
	b.WriteString("\npackage mlx\n\n// #include \"shim.h\"\n")
	for _, o := range ops {
		fmt.Fprintf(&b, "// #cgo noescape cx_op_%s\n// #cgo nocallback cx_op_%s\n", o.cname, o.cname)
	}
	b.WriteString("import \"C\"\n\nimport \"unsafe\"\n\n")
	for _, o := range ops {
		emitOpGo(&b, o)
	}
	return b.Bytes()
}

// checked are the C types that Go's int does not fit, with the scope's method that narrows to them.
var checked = map[string]string{"int": "cint", "size_t": "csize"}

// emitOpGo writes one method: checks, one call, the result into the scope. Each integer list has its own scratch slot.
func emitOpGo(b *bytes.Buffer, o op) {
	var params, required, optional, vectors, call, pre []string
	last := len(o.args) - 1
	ints := 0
	for i, a := range o.args {
		gtype := a.gtype
		if a.kind == argInts && i == last {
			gtype = "...int"
		}
		params = append(params, a.goArg+" "+gtype)
		switch a.kind {
		case argArray:
			required = append(required, a.goArg)
			call = append(call, a.goArg+".ctx")
		case argNullableArray:
			optional = append(optional, a.goArg)
			call = append(call, a.goArg+".handle()")
		case argVector:
			vectors = append(vectors, a.goArg)
			pre = append(pre, fmt.Sprintf("%sP := s.pointers(%d, %s)", a.goArg, len(vectors)-1, a.goArg))
			call = append(call, a.goArg+"P", fmt.Sprintf("C.size_t(len(%s))", a.goArg))
		case argInts:
			pre = append(pre, fmt.Sprintf("%sP := s.ints(%d, %s)", a.goArg, ints, a.goArg))
			call = append(call, a.goArg+"P", fmt.Sprintf("C.size_t(len(%s))", a.goArg))
			ints++
		case argInt64s:
			call = append(call, fmt.Sprintf("(*C.int64_t)(unsafe.Pointer(unsafe.SliceData(%s)))", a.goArg), fmt.Sprintf("C.size_t(len(%s))", a.goArg))
		case argString:
			call = append(call, fmt.Sprintf("(*C.char)(unsafe.Pointer(unsafe.StringData(%s)))", a.goArg), fmt.Sprintf("C.size_t(len(%s))", a.goArg))
		case argPlain:
			if f, ok := checked[a.ctype]; ok {
				call = append(call, fmt.Sprintf("s.%s(%s)", f, a.goArg))
				continue
			}
			call = append(call, fmt.Sprintf("C.%s(%s)", a.ctype, a.goArg))
		case argOptional:
			if a.ctype == "mlx_optional_int" {
				call = append(call, fmt.Sprintf("s.cint(%s.Value)", a.goArg), fmt.Sprintf("C.bool(%s.Set)", a.goArg))
				continue
			}
			call = append(call, fmt.Sprintf("C.%s(%s.Value)", optionalValue(a.ctype), a.goArg), fmt.Sprintf("C.bool(%s.Set)", a.goArg))
		}
	}
	if o.stream {
		call = append(call, "s.stream")
	}
	ret, inert := "*Array", "inert"
	switch o.outs {
	case outTwo:
		ret, inert = "(*Array, *Array)", "inert, inert"
	case outVector:
		ret, inert = "[]*Array", "nil"
	}
	inputs := strings.Join(append(append([]string{}, required...), optional...), ", ")
	if inputs != "" {
		inputs = ", " + inputs
	}
	fmt.Fprintf(b, "// %s is %s.\nfunc (s *Scope) %s(%s) %s {\n", o.goName, o.fn.name, o.goName, strings.Join(params, ", "), ret)
	fmt.Fprintf(b, "\tif !s.usable(%q)", o.label)
	if len(required) > 0 {
		fmt.Fprintf(b, " || !s.have(%q, %s)", o.label, strings.Join(required, ", "))
	}
	if len(optional) > 0 {
		fmt.Fprintf(b, " || !s.haveOrNil(%q, %s)", o.label, strings.Join(optional, ", "))
	}
	for _, v := range vectors {
		fmt.Fprintf(b, " || !s.have(%q, %s...)", o.label, v)
	}
	fmt.Fprintf(b, " {\n\t\treturn %s\n\t}\n", inert)
	for _, p := range pre {
		fmt.Fprintf(b, "\t%s\n", p)
	}
	fmt.Fprintf(b, "\to := C.cx_op_%s(%s)\n", o.cname, strings.Join(call, ", "))
	if len(vectors) > 0 { // an op takes arrays or one list of them, hardly both: the lists are what an error shows
		fmt.Fprintf(b, "\tif o.rc != 0 {\n\t\ts.failOp(%q, append([]*Array{%s}, %s...)...)\n\t\treturn %s\n\t}\n", o.label, strings.TrimPrefix(inputs, ", "), vectors[0], inert)
		inputs = ""
	}
	switch o.outs {
	case outOne:
		fmt.Fprintf(b, "\treturn s.one(%q, o%s)\n}\n\n", o.label, inputs)
	case outTwo:
		fmt.Fprintf(b, "\treturn s.two(%q, o%s)\n}\n\n", o.label, inputs)
	case outVector:
		fmt.Fprintf(b, "\treturn s.many(%q, o%s)\n}\n\n", o.label, inputs)
	}
}
