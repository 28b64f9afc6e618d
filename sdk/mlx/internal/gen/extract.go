package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// headers are the parts of mlx-c that the table covers, in the order in which their types need one another.
var headers = []string{
	"string", "array", "vector", "map", "optional", "device", "stream", "closure", "compile", "cuda", "distributed_group",
	"distributed", "error", "io_types", "io", "export", "fast", "fft", "graph_utils", "linalg", "memory", "metal", "ops",
	"random", "transforms", "transforms_impl", "version",
}

// optionalGuards are the preprocessor names around functions that a build of mlx-c may leave out.
var optionalGuards = map[string]bool{"HAS_FLOAT16": true, "HAS_BFLOAT16": true}

var (
	lineComment  = regexp.MustCompile(`//[^\n]*`)
	mayBeNull    = regexp.MustCompile(`/\*\s*may be null\s*\*/`)
	blockComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	handleDecl   = regexp.MustCompile(`^typedef struct \w+ \{ ?void\* ctx; ?\} (\w+)$`)
	enumDecl     = regexp.MustCompile(`^typedef enum \w+ \{ ?(.*?),? ?\} (\w+)$`)
	funcDecl     = regexp.MustCompile(`^((?:const )?\w+\*?) (\w+)\((.*)\)$`)
)

// extract reads the prototypes of mlx-c from dir (the folder mlx/c of its source) and renders the table.
func extract(dir string) (string, error) {
	var b strings.Builder
	b.WriteString(tableHeader)
	seen := map[string]bool{}
	for _, h := range headers {
		src, err := os.ReadFile(filepath.Join(dir, h+".h"))
		if err != nil {
			return "", fmt.Errorf("mlx-c headers: %w", err)
		}
		fmt.Fprintf(&b, "\nheader %s\n", h)
		for _, d := range declarations(string(src)) {
			line, name, err := d.tableLine()
			if err != nil {
				return "", fmt.Errorf("%s.h: %w", h, err)
			}
			if line == "" {
				continue
			}
			if seen[name] {
				return "", fmt.Errorf("%s.h: %s is declared twice", h, name)
			}
			seen[name] = true
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	return b.String(), checkCovered(dir)
}

// checkCovered refuses a header folder with a header that the table does not know, so that a new one cannot be missed.
func checkCovered(dir string) error {
	known := map[string]bool{"mlx": true, "half": true}
	for _, h := range headers {
		known[h] = true
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.h"))
	if err != nil {
		return err
	}
	sort.Strings(files)
	for _, f := range files {
		if n := strings.TrimSuffix(filepath.Base(f), ".h"); !known[n] {
			return fmt.Errorf("mlx-c header %s.h is not covered: add it to headers in extract.go", n)
		}
	}
	return nil
}

type declaration struct {
	text     string
	optional bool
}

// declarations splits a header into its top-level statements, whitespace folded, comments and preprocessor lines gone.
func declarations(src string) []declaration {
	src = mayBeNull.ReplaceAllString(src, "?")
	src = blockComment.ReplaceAllString(src, " ")
	src = lineComment.ReplaceAllString(src, "")
	var out []declaration
	var cur strings.Builder
	var guards []bool
	skipAlternative := 0
	depth := 0
	for _, line := range strings.Split(src, "\n") {
		t := strings.TrimSpace(line)
		if strings.HasPrefix(t, "#") {
			guards, skipAlternative = directive(t, guards, skipAlternative)
			continue
		}
		if skipAlternative > 0 || strings.HasPrefix(t, `extern "C"`) || (t == "}" && depth == 0) {
			continue
		}
		for _, r := range t + " " {
			switch r {
			case '{':
				depth++
			case '}':
				depth--
			}
			if r == ';' && depth == 0 {
				if s := fold(cur.String()); s != "" {
					out = append(out, declaration{text: s, optional: anyTrue(guards)})
				}
				cur.Reset()
				continue
			}
			cur.WriteRune(r)
		}
	}
	return out
}

// directive follows #if nesting: which guards are optional features, and whether an MSVC-only branch is being skipped.
func directive(t string, guards []bool, skip int) ([]bool, int) {
	word, rest, _ := strings.Cut(strings.TrimPrefix(t, "#"), " ")
	switch word {
	case "ifdef", "ifndef", "if":
		guards = append(guards, optionalGuards[strings.TrimSpace(rest)])
		if rest == "_MSC_VER" {
			skip = len(guards)
		}
	case "else":
		if skip == len(guards) {
			skip = 0
		}
	case "endif":
		if len(guards) > 0 {
			guards = guards[:len(guards)-1]
		}
	}
	return guards, skip
}

func anyTrue(bs []bool) bool {
	for _, b := range bs {
		if b {
			return true
		}
	}
	return false
}

func fold(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	s = strings.ReplaceAll(s, "( ", "(")
	s = strings.ReplaceAll(s, " )", ")")
	return strings.ReplaceAll(s, " ?", "?")
}

// tableLine renders one declaration; an empty line is one the table has no use for.
func (d declaration) tableLine() (line, name string, err error) {
	t := d.text
	if m := handleDecl.FindStringSubmatch(t); m != nil {
		return "handle " + m[1], m[1], nil
	}
	if m := enumDecl.FindStringSubmatch(t); m != nil {
		return "enum " + m[2] + " " + m[1], m[2], nil
	}
	if strings.HasPrefix(t, "typedef float _Complex ") || strings.HasPrefix(t, "static ") {
		return "", "", nil // the complex type and the empty array are the shim's own
	}
	if strings.HasPrefix(t, "typedef ") {
		return "type " + t, t, nil
	}
	m := funcDecl.FindStringSubmatch(t)
	if m == nil {
		return "", "", fmt.Errorf("declaration not understood: %q", t)
	}
	if strings.Contains(m[3], "...") {
		return "", "", nil // variadic: it reports errors from inside mlx-c and cannot be forwarded
	}
	kind := "func"
	if d.optional {
		kind = "optional"
	}
	return fmt.Sprintf("%s %s", kind, t), m[2], nil
}

const tableHeader = `# The C interface of mlx-c 0.6.0 as one declaration a line: the input of go generate ./mlx.
# "optional" functions may be absent from a build of mlx-c; a parameter that ends in ? may be null.
# Made from the headers by: go run ./mlx/internal/gen -headers DIR/mlx/c -dir mlx
`
