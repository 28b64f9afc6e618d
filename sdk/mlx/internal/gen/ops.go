package main

import (
	"fmt"
	"strings"
)

// opHeaders hold the functions that become methods of Scope.
var opHeaders = map[string]bool{"ops": true, "fast": true, "random": true, "linalg": true, "fft": true}

// notOps are functions of those headers that are no operation on arrays; sdk/mlx calls the ones it needs by hand.
func notOp(name string) bool {
	return name == "mlx_random_seed" || strings.HasPrefix(name, "mlx_fast_cuda_kernel") || strings.HasPrefix(name, "mlx_fast_metal_kernel")
}

// handWritten are ops that sugar in sdk/mlx calls under an unexported name, because their plain form is clumsy in Go.
var handWritten = map[string]string{
	"mlx_concatenate_axis":                  "concatAxis",
	"mlx_transpose":                         "transposeAll",
	"mlx_transpose_axes":                    "transposeAxes",
	"mlx_dequantize":                        "dequantize",
	"mlx_quantize":                          "quantize",
	"mlx_quantized_matmul":                  "quantizedMatmul",
	"mlx_gather_mm":                         "gatherMM",
	"mlx_gather_qmm":                        "gatherQMM",
	"mlx_fast_rope":                         "fastRoPE",
	"mlx_fast_rope_dynamic":                 "fastRoPEDynamic",
	"mlx_fast_scaled_dot_product_attention": "fastSDPA",
	"mlx_slice":                             "slice",
	"mlx_slice_update":                      "sliceUpdate",
}

// renamed are ops whose Go name is not the CamelCase of the C name.
var renamed = map[string]string{
	"mlx_astype":             "AsType",
	"mlx_concatenate":        "ConcatAll",
	"mlx_divide":             "Div",
	"mlx_fast_cross_entropy": "CrossEntropy",
	"mlx_fast_layer_norm":    "LayerNorm",
	"mlx_fast_rms_norm":      "RMSNorm",
	"mlx_gather_qqmm":        "GatherQQMM",
	"mlx_logsumexp":          "LogSumExpAll",
	"mlx_logsumexp_axes":     "LogSumExpAxes",
	"mlx_logsumexp_axis":     "LogSumExp",
	"mlx_multiply":           "Mul",
	"mlx_negative":           "Neg",
	"mlx_power":              "Pow",
	"mlx_qqmm":               "QQMM",
	"mlx_segmented_mm":       "SegmentedMM",
	"mlx_subtract":           "Sub",
	"mlx_argpartition":       "ArgPartitionAll",
	"mlx_argpartition_axis":  "ArgPartition",
	"mlx_argsort":            "ArgSortAll",
	"mlx_argsort_axis":       "ArgSort",
	"mlx_topk":               "TopKAll",
	"mlx_topk_axis":          "TopK",
}

// keepAxis are families where the _axis function is something else than the base function along one axis.
var keepAxis = map[string]bool{"mlx_tensordot": true, "mlx_scatter_add": true}

// op is a function of mlx-c as a method of Scope.
type op struct {
	fn     function
	cname  string // the forwarder's suffix
	goName string
	label  string // the name in error messages
	outs   outKind
	args   []arg
	stream bool
}

type outKind int

const (
	outOne outKind = iota
	outTwo
	outVector
)

type argKind int

const (
	argArray argKind = iota
	argNullableArray
	argVector
	argInts
	argInt64s
	argString
	argPlain
	argOptional
)

type arg struct {
	kind  argKind
	name  string // C name
	goArg string
	ctype string
	gtype string
}

var plainTypes = map[string]string{
	"int": "int", "float": "float32", "double": "float64", "bool": "bool", "size_t": "int", "uint64_t": "uint64",
	"mlx_dtype": "DType", "mlx_fft_norm": "FFTNorm",
}

var optionalTypes = map[string]string{"mlx_optional_int": "Opt[int]", "mlx_optional_float": "Opt[float32]", "mlx_optional_dtype": "Opt[DType]"}

// ops picks the operations and refuses one that it cannot express, so that a new mlx-c never loses one in silence.
func (a *api) ops() ([]op, error) {
	names := map[string]bool{}
	for _, f := range a.funcs {
		names[f.name] = true
	}
	var out []op
	taken := map[string]string{}
	for _, f := range a.funcs {
		if !opHeaders[f.header] || notOp(f.name) {
			continue
		}
		o, err := makeOp(f, names)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if prev, ok := taken[o.goName]; ok {
			return nil, fmt.Errorf("%s and %s are both %s in Go", prev, f.name, o.goName)
		}
		taken[o.goName] = f.name
		out = append(out, o)
	}
	return out, nil
}

func makeOp(f function, names map[string]bool) (op, error) {
	o := op{fn: f, cname: strings.TrimPrefix(f.name, "mlx_"), goName: goName(f.name, names)}
	o.label = strings.TrimPrefix(o.cname, "fast_")
	ps := f.params
	switch {
	case f.ret != "int" || len(ps) == 0:
		return o, fmt.Errorf("does not return a code")
	case ps[0].typ == "mlx_vector_array*":
		o.outs, ps = outVector, ps[1:]
	case len(ps) > 1 && ps[0].typ == "mlx_array*" && ps[1].typ == "mlx_array*":
		o.outs, ps = outTwo, ps[2:]
	case ps[0].typ == "mlx_array*":
		ps = ps[1:]
	default:
		return o, fmt.Errorf("first parameter is no result")
	}
	for i := 0; i < len(ps); i++ {
		p := ps[i]
		if p.typ == "mlx_stream" {
			o.stream = true
			continue
		}
		g := arg{name: p.name, goArg: goParam(p.name), ctype: p.typ}
		switch {
		case p.typ == "mlx_array" && p.nullable:
			g.kind, g.gtype = argNullableArray, "*Array"
		case p.typ == "mlx_array":
			g.kind, g.gtype = argArray, "*Array"
		case p.typ == "mlx_vector_array":
			g.kind, g.gtype = argVector, "[]*Array"
		case p.typ == "int*" || p.typ == "int64_t*":
			if i+1 >= len(ps) || ps[i+1].name != p.name+"_num" {
				return o, fmt.Errorf("%s has no length", p.name)
			}
			i++
			g.kind, g.gtype = argInts, "[]int"
			if p.typ == "int64_t*" {
				g.kind, g.gtype = argInt64s, "[]int64"
			}
		case p.typ == "char*":
			g.kind, g.gtype = argString, "string"
		case plainTypes[p.typ] != "":
			g.kind, g.gtype = argPlain, plainTypes[p.typ]
		case optionalTypes[p.typ] != "":
			g.kind, g.gtype = argOptional, optionalTypes[p.typ]
		default:
			return o, fmt.Errorf("parameter %s of type %q is not understood", p.name, p.typ)
		}
		o.args = append(o.args, g)
	}
	return o, nil
}

// goName: the axis form of a family has the short name, because models use it; the form over all elements ends in All.
func goName(c string, names map[string]bool) string {
	if n, ok := handWritten[c]; ok {
		return n
	}
	if n, ok := renamed[c]; ok {
		return n
	}
	if n, ok := strings.CutPrefix(c, "mlx_fft_"); ok {
		return fftName(n)
	}
	base := strings.TrimSuffix(c, "_axis")
	if base != c && names[base] && !keepAxis[base] {
		return camel(base)
	}
	if names[c+"_axis"] && !keepAxis[c] {
		return camel(c) + "All"
	}
	return camel(c)
}

// fftName: rfft2 is RFFT2, fftshift is FFTShift.
func fftName(n string) string {
	before, after, _ := strings.Cut(n, "fft")
	if len(after) > 1 {
		after = strings.ToUpper(after[:1]) + after[1:]
	}
	return strings.ToUpper(before) + "FFT" + strings.ReplaceAll(after, "n", "N")
}

func camel(c string) string {
	var b strings.Builder
	for _, w := range strings.Split(strings.TrimPrefix(strings.TrimPrefix(c, "mlx_"), "fast_"), "_") {
		if w != "" {
			b.WriteString(strings.ToUpper(w[:1]) + w[1:])
		}
	}
	return b.String()
}

var goKeywords = map[string]bool{"type": true, "range": true, "func": true, "s": true, "o": true}

func goParam(c string) string {
	parts := strings.Split(strings.Trim(c, "_"), "_")
	for i, w := range parts {
		if i > 0 && w != "" {
			parts[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	n := strings.Join(parts, "")
	n = strings.ToLower(n[:1]) + n[1:]
	if n == "uPLO" {
		n = "uplo"
	}
	if goKeywords[n] {
		n += "_"
	}
	return n
}
