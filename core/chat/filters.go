package chat

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/ardanlabs/jinja"
)

// filter is one of jinja2's. The library's own are left alone: several differ from Python's or have no bound.
type filter func(r *rendering, c call) (jinja.Value, error)

// call is what a filter, test or method got. args begin with what it is applied to.
type call struct {
	args   []jinja.Value
	kwargs map[string]jinja.Value
}

// get is an argument by its place (0 is what the filter is applied to) or name; undefined when it was not given.
func (c call) get(i int, name string) jinja.Value {
	if i < len(c.args) {
		return c.args[i]
	}
	if v, ok := c.kwargs[name]; ok {
		return v
	}
	return jinja.Undefined()
}

func (c call) text(i int, name, otherwise string) string {
	if v := c.get(i, name); v.IsString() {
		return v.AsString()
	}
	return otherwise
}

func (c call) whole(i int, name string, otherwise int64) int64 {
	if n, ok := numberOf(c.get(i, name)); ok {
		if n.whole {
			return n.i
		}
		return int64(n.f)
	}
	return otherwise
}

func (c call) truth(i int, name string) bool {
	v := c.get(i, name)
	return !v.IsUndefined() && v.IsTruthy()
}

// filters by name. Those that read one text and give one are in textFilters.
var filters map[string]filter

func init() { // a table that some of its own functions read
	filters = map[string]filter{
		"tojson": filterToJSON, "round": func(_ *rendering, c call) (jinja.Value, error) { return roundFilter(c.args, c.kwargs) },
		"string": filterString, "safe": func(_ *rendering, c call) (jinja.Value, error) { return c.args[0], nil },
		"default": filterDefault, "d": filterDefault, "length": filterLength, "count": filterLength,
		"first": filterFirst, "last": filterLast, "list": filterList, "items": filterItems, "join": filterJoin,
		"reverse": filterReverse, "replace": filterReplace, "indent": filterIndent, "center": filterCenter,
		"int": filterInt, "float": filterFloat, "abs": filterAbs, "sum": filterSum, "min": filterMin, "max": filterMax,
		"sort": filterSort, "unique": filterUnique, "dictsort": filterDictsort, "groupby": filterGroupby,
		"batch": filterBatch, "slice": filterSlice, "map": filterMap, "attr": filterAttr,
		"select": selecting(true, false), "reject": selecting(false, false), "selectattr": selecting(true, true), "rejectattr": selecting(false, true),
		"format": filterFormat, "from_json": filterFromJSON, "fromjson": filterFromJSON,
	}
	for name, fn := range textFilters {
		filters[name] = func(r *rendering, c call) (jinja.Value, error) {
			s, err := r.str(c.args[0])
			if err != nil {
				return jinja.Undefined(), err
			}
			return r.text(fn(s, c))
		}
	}
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

var textFilters = map[string]func(s string, c call) string{
	"lower": func(s string, _ call) string { return strings.ToLower(s) },
	"upper": func(s string, _ call) string { return strings.ToUpper(s) },
	"title": func(s string, _ call) string { return titleFilter(s) }, "capitalize": func(s string, _ call) string { return capitalize(s) },
	"trim": func(s string, c call) string {
		if v := c.get(1, "chars"); v.IsString() {
			return strings.Trim(s, v.AsString())
		}
		return strings.TrimFunc(s, pythonSpace)
	},
	"escape": func(s string, _ call) string { return htmlEscaper.Replace(s) }, "e": func(s string, _ call) string { return htmlEscaper.Replace(s) },
	"forceescape": func(s string, _ call) string { return htmlEscaper.Replace(s) },
	"urlencode": func(s string, _ call) string {
		return strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(s), "+", "%20"), "%2F", "/")
	},
	"truncate": truncate,
}

// apply runs a filter by name, as map does.
func (r *rendering) apply(name string, c call) (jinja.Value, error) {
	f, ok := filters[name]
	if !ok {
		return jinja.Undefined(), fmt.Errorf("there is no filter %s", name)
	}
	return f(r, c)
}

// str is Python's str(v).
func (r *rendering) str(v jinja.Value) (string, error) {
	if v.IsString() {
		return v.AsString(), nil
	}
	var b strings.Builder
	if err := writeValue(&b, v, false, 0); err != nil {
		return "", err
	}
	return b.String(), r.charge(b.Len())
}

func filterToJSON(r *rendering, c call) (jinja.Value, error) {
	v, err := toJSON(c.args, maps.Clone(c.kwargs))
	if err != nil {
		return v, err
	}
	return v, r.charge(len(v.AsString()))
}

func filterFromJSON(_ *rendering, c call) (jinja.Value, error) {
	if !c.args[0].IsString() {
		return c.args[0], nil
	}
	v, err := parseJSON([]byte(c.args[0].AsString()))
	if err != nil {
		return jinja.Undefined(), err
	}
	return toValue(v, 0)
}

func filterString(r *rendering, c call) (jinja.Value, error) {
	s, err := r.str(c.args[0])
	return jinja.NewString(s), err
}

func filterDefault(_ *rendering, c call) (jinja.Value, error) {
	v := c.args[0]
	if !v.IsUndefined() && (v.IsTruthy() || !c.truth(2, "boolean")) {
		return v, nil
	}
	if d := c.get(1, "default_value"); !d.IsUndefined() {
		return d, nil
	}
	return jinja.NewString(""), nil
}

// elements are what Python's iteration over v gives.
func (r *rendering) elements(v jinja.Value) ([]jinja.Value, error) {
	if err := r.spread(v); err != nil {
		return nil, err
	}
	switch {
	case v.IsList():
		return v.AsList().Items, nil
	case v.IsUndefined():
		return nil, nil
	case v.IsDict():
		out := make([]jinja.Value, 0, v.AsDict().Len())
		for _, k := range v.AsDict().Keys {
			out = append(out, jinja.NewString(k))
		}
		return out, nil
	case v.IsString():
		var out []jinja.Value
		for _, c := range v.AsString() {
			out = append(out, jinja.NewString(string(c)))
		}
		return out, nil
	}
	return nil, fmt.Errorf("%s is not iterable", pythonType(v))
}

func filterLength(_ *rendering, c call) (jinja.Value, error) {
	switch v := c.args[0]; {
	case v.IsString():
		return jinja.NewInt(int64(len([]rune(v.AsString())))), nil
	case v.IsList():
		return jinja.NewInt(int64(v.AsList().Len())), nil
	case v.IsDict():
		return jinja.NewInt(int64(v.AsDict().Len())), nil
	case v.IsUndefined():
		return jinja.NewInt(0), nil
	}
	return jinja.Undefined(), fmt.Errorf("%s has no length", pythonType(c.args[0]))
}

func filterFirst(r *rendering, c call) (jinja.Value, error) { return r.end(c.args[0], 0) }
func filterLast(r *rendering, c call) (jinja.Value, error)  { return r.end(c.args[0], -1) }

func (r *rendering) end(v jinja.Value, at int64) (jinja.Value, error) {
	if v.IsString() {
		return characterAt(v.AsString(), at), nil
	}
	items, err := r.elements(v)
	if i, ok := index(at, len(items)); ok {
		return items[i], err
	}
	return jinja.Undefined(), err
}

func filterList(r *rendering, c call) (jinja.Value, error) {
	items, err := r.elements(c.args[0])
	return jinja.NewList(slices.Clone(items)), err
}

func filterItems(r *rendering, c call) (jinja.Value, error) {
	switch v := c.args[0]; {
	case v.IsUndefined():
		return jinja.NewList(nil), nil
	case v.IsDict():
		return r.method([]jinja.Value{v, jinja.NewString("items")}, nil)
	}
	return jinja.Undefined(), fmt.Errorf("items needs a mapping, not %s", pythonType(c.args[0]))
}

func filterJoin(r *rendering, c call) (jinja.Value, error) {
	items, err := r.elements(c.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	sep, by := c.text(1, "d", ""), c.get(2, "attribute")
	var b strings.Builder
	for i, item := range items {
		if i > 0 {
			b.WriteString(sep)
		}
		if !by.IsUndefined() && !by.IsNone() {
			if item, err = r.path(item, by); err != nil {
				return jinja.Undefined(), err
			}
		}
		if err := writeValue(&b, item, false, 0); err != nil {
			return jinja.Undefined(), err
		}
		if b.Len() > maxOutput {
			break
		}
	}
	return r.text(b.String())
}

func filterReverse(r *rendering, c call) (jinja.Value, error) {
	items, err := r.elements(c.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	out := slices.Clone(items)
	slices.Reverse(out)
	if !c.args[0].IsString() {
		return jinja.NewList(out), nil
	}
	return filterJoin(r, call{args: []jinja.Value{jinja.NewList(out)}})
}

func filterReplace(r *rendering, c call) (jinja.Value, error) {
	s, err := r.str(c.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	from, err := r.str(c.get(1, "old"))
	if err != nil {
		return jinja.Undefined(), err
	}
	to, err := r.str(c.get(2, "new"))
	if err != nil {
		return jinja.Undefined(), err
	}
	return r.replace(s, from, to, c.whole(3, "count", -1))
}

// replace looks at the size first: it can be the square of what goes in.
func (r *rendering) replace(s, from, to string, n int64) (jinja.Value, error) {
	hits := int64(strings.Count(s, from))
	if n >= 0 {
		hits = min(hits, n)
	}
	if grows := int64(len(to) - len(from)); grows > 0 && hits > (maxOutput-int64(len(s)))/grows {
		return jinja.Undefined(), r.fail("asks for a value of more than %d bytes", maxOutput)
	}
	return r.text(strings.Replace(s, from, to, int(hits)))
}

func filterIndent(r *rendering, c call) (jinja.Value, error) {
	s, err := r.str(c.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	pad := c.text(1, "width", "")
	if !c.get(1, "width").IsString() {
		width := c.whole(1, "width", 4)
		if width > maxRange {
			return jinja.Undefined(), fmt.Errorf("indent by %d is too wide", width)
		}
		pad = strings.Repeat(" ", int(max(width, 0)))
	}
	if n := strings.Count(s, "\n") + 1; len(pad) > 0 && n > maxOutput/len(pad) {
		return jinja.Undefined(), r.fail("asks for a value of more than %d bytes", maxOutput)
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if i == 0 && !c.truth(2, "first") || i > 0 && line == "" && !c.truth(3, "blank") {
			continue
		}
		lines[i] = pad + line
	}
	return r.text(strings.Join(lines, "\n"))
}

func filterCenter(r *rendering, c call) (jinja.Value, error) {
	s, err := r.str(c.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	return r.padded(s, c.whole(1, "width", 80), " ", "center")
}

func filterFormat(r *rendering, c call) (jinja.Value, error) {
	s, err := r.str(c.args[0])
	if err != nil {
		return jinja.Undefined(), err
	}
	return r.percent(s, jinja.NewList(c.args[1:]))
}

func truncate(s string, c call) string {
	length, end, leeway := c.whole(1, "length", 255), c.text(3, "end", "..."), c.whole(4, "leeway", 5)
	runes := []rune(s)
	if int64(len(runes)) <= length+leeway {
		return s
	}
	cut := string(runes[:max(length-int64(len([]rune(end))), 0)])
	if c.truth(2, "killwords") {
		return cut + end
	}
	if k := strings.LastIndexByte(cut, ' '); k >= 0 {
		cut = cut[:k]
	}
	return cut + end
}
