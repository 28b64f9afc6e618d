package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// method calls a.name(...): Python's methods of texts, lists and mappings, else what a mapping holds under that name.
func (r *rendering) method(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	of, name := args[0], args[1].AsString()
	c := call{args[2:], kwargs}
	switch {
	case of.IsUndefined():
		return jinja.Undefined(), fmt.Errorf("%s() of a value that is undefined", name)
	case of.IsString() && stringMethods[name] != nil:
		return stringMethods[name](r, of.AsString(), c)
	case of.IsList() && listMethods[name]:
		return r.listMethod(of.AsList(), name, c)
	case of.IsDict():
		if v, ok := of.AsDict().Get(name); ok && v.IsCallable() {
			return v.AsCallable().Fn(c.args, kwargs)
		}
		if dictMethods[name] {
			return r.dictMethod(of.AsDict(), name, c)
		}
	}
	return jinja.Undefined(), fmt.Errorf("%s has no method %s", pythonType(of), name)
}

type stringMethod func(r *rendering, s string, c call) (jinja.Value, error)

// stringMethods is filled by init, as one of them formats and so reads attributes.
var stringMethods map[string]stringMethod

func init() {
	stringMethods = map[string]stringMethod{
		"split": splitMethod, "rsplit": rsplitMethod, "splitlines": splitLines, "partition": partition, "rpartition": rpartition,
		"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
		"replace": func(r *rendering, s string, c call) (jinja.Value, error) {
			return r.replace(s, c.text(0, "old", ""), c.text(1, "new", ""), c.whole(2, "count", -1))
		},
		"join": func(r *rendering, s string, c call) (jinja.Value, error) {
			return filterJoin(r, call{args: []jinja.Value{c.get(0, "iterable"), jinja.NewString(s)}})
		},
		"format": formatMethod,
		"count": func(_ *rendering, s string, c call) (jinja.Value, error) {
			return jinja.NewInt(int64(strings.Count(s, c.text(0, "sub", "")))), nil
		},
		"find": finder(strings.Index, false), "rfind": finder(strings.LastIndex, false),
		"index": finder(strings.Index, true), "rindex": finder(strings.LastIndex, true),
		"zfill": func(r *rendering, s string, c call) (jinja.Value, error) {
			return r.padded(s, c.whole(0, "width", 0), "0", "zfill")
		},
	}
	for name, fn := range map[string]func(string) string{
		"upper": strings.ToUpper, "lower": strings.ToLower, "casefold": strings.ToLower, "title": titleMethod, "capitalize": capitalize,
		"swapcase": swapCase,
	} {
		stringMethods[name] = func(r *rendering, s string, _ call) (jinja.Value, error) { return r.text(fn(s)) }
	}
	for name, cut := range map[string]func(string, func(rune) bool) string{
		"strip": strings.TrimFunc, "lstrip": strings.TrimLeftFunc, "rstrip": strings.TrimRightFunc,
	} {
		stringMethods[name] = func(_ *rendering, s string, c call) (jinja.Value, error) {
			if v := c.get(0, "chars"); v.IsString() {
				return jinja.NewString(cut(s, func(r rune) bool { return strings.ContainsRune(v.AsString(), r) })), nil
			}
			return jinja.NewString(cut(s, pythonSpace)), nil
		}
	}
	for name, cut := range map[string]func(string, string) string{"removeprefix": strings.TrimPrefix, "removesuffix": strings.TrimSuffix} {
		stringMethods[name] = func(_ *rendering, s string, c call) (jinja.Value, error) {
			return jinja.NewString(cut(s, c.text(0, "", ""))), nil
		}
	}
	for _, name := range []string{"ljust", "rjust", "center"} {
		stringMethods[name] = func(r *rendering, s string, c call) (jinja.Value, error) {
			return r.padded(s, c.whole(0, "width", 0), c.text(1, "fillchar", " "), name)
		}
	}
	for name, is := range characterTests {
		stringMethods[name] = func(_ *rendering, s string, _ call) (jinja.Value, error) { return jinja.NewBool(is(s)), nil }
	}
}

// characterTests ask about every character, and want one.
var characterTests = map[string]func(string) bool{
	"isdigit": every(unicode.IsDigit), "isdecimal": every(unicode.IsDigit), "isnumeric": every(unicode.IsNumber),
	"isalpha": every(unicode.IsLetter), "isspace": every(pythonSpace),
	"isalnum": every(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
	"isupper": func(s string) bool { return s == strings.ToUpper(s) && s != strings.ToLower(s) },
	"islower": func(s string) bool { return s == strings.ToLower(s) && s != strings.ToUpper(s) },
	"istitle": func(s string) bool { return s == titleMethod(s) && s != strings.ToLower(s) },
}

func every(is func(rune) bool) func(string) bool {
	return func(s string) bool { return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !is(r) }) }
}

func (r *rendering) texts(parts []string) (jinja.Value, error) {
	items := make([]jinja.Value, len(parts))
	for i, p := range parts {
		items[i] = jinja.NewString(p)
	}
	return r.list(items)
}

func splitMethod(r *rendering, s string, c call) (jinja.Value, error) {
	n := int(c.whole(1, "maxsplit", -1))
	sep := c.get(0, "sep")
	if sep.IsString() && sep.AsString() == "" {
		return jinja.Undefined(), errors.New("split by an empty text")
	}
	if err := r.charge(strings.Count(s, c.text(0, "sep", " ")) * charBytes); err != nil {
		return jinja.Undefined(), err
	}
	if sep.IsString() {
		if n >= 0 {
			n++
		}
		return r.texts(strings.SplitN(s, sep.AsString(), n))
	}
	if n < 0 {
		return r.texts(strings.FieldsFunc(s, pythonSpace))
	}
	var out []string
	for s = strings.TrimLeftFunc(s, pythonSpace); s != ""; s = strings.TrimLeftFunc(s, pythonSpace) {
		k := strings.IndexFunc(s, pythonSpace)
		if len(out) == n || k < 0 {
			out = append(out, s) // the rest stays as it is
			break
		}
		out, s = append(out, s[:k]), s[k:]
	}
	return r.texts(out)
}

func rsplitMethod(r *rendering, s string, c call) (jinja.Value, error) {
	sep, n := c.text(0, "sep", ""), int(c.whole(1, "maxsplit", -1))
	if sep == "" || n < 0 {
		if n >= 0 {
			return jinja.Undefined(), errors.New("rsplit at white space with a maximum is not understood")
		}
		return splitMethod(r, s, c)
	}
	var out []string
	for len(out) < n {
		k := strings.LastIndex(s, sep)
		if k < 0 {
			break
		}
		out, s = append(out, s[k+len(sep):]), s[:k]
	}
	out = append(out, s)
	slices.Reverse(out)
	return r.texts(out)
}

func splitLines(r *rendering, s string, c call) (jinja.Value, error) {
	var out []string
	for s != "" {
		k := strings.IndexFunc(s, func(r rune) bool { return strings.ContainsRune("\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029", r) })
		if k < 0 {
			out = append(out, s)
			break
		}
		_, size := utf8.DecodeRuneInString(s[k:])
		if strings.HasPrefix(s[k:], "\r\n") {
			size = 2
		}
		line := s[:k]
		if c.truth(0, "keepends") {
			line = s[:k+size]
		}
		out, s = append(out, line), s[k+size:]
	}
	return r.texts(out)
}

func partition(r *rendering, s string, c call) (jinja.Value, error) {
	sep := c.text(0, "sep", "")
	if k := strings.Index(s, sep); k >= 0 && sep != "" {
		return r.texts([]string{s[:k], sep, s[k+len(sep):]})
	}
	return r.texts([]string{s, "", ""})
}

func rpartition(r *rendering, s string, c call) (jinja.Value, error) {
	sep := c.text(0, "sep", "")
	if k := strings.LastIndex(s, sep); k >= 0 && sep != "" {
		return r.texts([]string{s[:k], sep, s[k+len(sep):]})
	}
	return r.texts([]string{"", "", s})
}

// affix is startswith or endswith: one text, or any of several.
func affix(has func(string, string) bool) stringMethod {
	return func(_ *rendering, s string, c call) (jinja.Value, error) {
		of := c.get(0, "prefix")
		if of.IsString() {
			return jinja.NewBool(has(s, of.AsString())), nil
		}
		if !of.IsList() {
			return jinja.Undefined(), fmt.Errorf("the beginning or end of a text is a text, not %s", pythonType(of))
		}
		return jinja.NewBool(slices.ContainsFunc(of.AsList().Items, func(v jinja.Value) bool { return v.IsString() && has(s, v.AsString()) })), nil
	}
}

// finder gives places in characters.
func finder(find func(string, string) int, must bool) stringMethod {
	return func(_ *rendering, s string, c call) (jinja.Value, error) {
		skipped := 0
		for from := c.whole(1, "start", 0); from > 0 && s != ""; from-- {
			_, size := utf8.DecodeRuneInString(s)
			s, skipped = s[size:], skipped+1
		}
		k := find(s, c.text(0, "sub", ""))
		if k < 0 {
			if must {
				return jinja.Undefined(), errors.New("substring not found")
			}
			return jinja.NewInt(-1), nil
		}
		return jinja.NewInt(int64(utf8.RuneCountInString(s[:k]) + skipped)), nil
	}
}

// padded fills a text up to a width.
func (r *rendering) padded(s string, width int64, fill, how string) (jinja.Value, error) {
	n := width - int64(utf8.RuneCountInString(s))
	switch {
	case utf8.RuneCountInString(fill) != 1:
		return jinja.Undefined(), errors.New("the fill of a text is one character")
	case n <= 0:
		return jinja.NewString(s), nil
	case n > maxRange:
		return jinja.Undefined(), fmt.Errorf("a text of width %d is too wide", width)
	}
	left := 0
	switch how {
	case "rjust", "zfill":
		left = int(n)
	case "center":
		left = int(n/2 + n&width&1)
	}
	sign := ""
	if how == "zfill" && (strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+")) {
		sign, s = s[:1], s[1:]
	}
	return r.text(sign + strings.Repeat(fill, left) + s + strings.Repeat(fill, int(n)-left))
}

// formatMethod is str.format, with fields that are a place or a name.
func formatMethod(r *rendering, s string, c call) (jinja.Value, error) {
	var b strings.Builder
	for next := int64(0); s != ""; {
		k := strings.IndexAny(s, "{}")
		if k < 0 {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:k])
		if strings.HasPrefix(s[k:], "{{") || strings.HasPrefix(s[k:], "}}") {
			b.WriteByte(s[k])
			s = s[k+2:]
			continue
		}
		end := strings.IndexByte(s[k:], '}')
		if s[k] != '{' || end < 0 {
			return jinja.Undefined(), errors.New("a format's braces do not match")
		}
		name := s[k+1 : k+end]
		s = s[k+end+1:]
		var v jinja.Value
		place := next
		if name == "" {
			next++
		} else if _, err := fmt.Sscanf(name, "%d", &place); err != nil {
			place = -1
			v = c.kwargs[name]
		}
		if place >= 0 && place < int64(len(c.args)) {
			v = c.args[place]
		}
		if v.IsUndefined() {
			return v, fmt.Errorf("there is nothing for the field {%s} of a format", name)
		}
		if err := writeValue(&b, v, false, 0); err != nil {
			return v, err
		}
		if b.Len() > maxOutput {
			break
		}
	}
	return r.text(b.String())
}

// capitalize is Python's: the first character upper, the others lower.
func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToUpper(s[:n]) + strings.ToLower(s[n:])
}

// titleMethod is str.title: a letter behind anything else is upper.
func titleMethod(s string) string {
	before := ' '
	return strings.Map(func(r rune) rune {
		first := !unicode.IsLetter(before)
		before = r
		if first {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, s)
}

// titleFilter is jinja2's: words begin behind white space, hyphens and opening brackets.
func titleFilter(s string) string {
	first := true
	return strings.Map(func(r rune) rune {
		if pythonSpace(r) || strings.ContainsRune("-({[<", r) {
			first = true
			return r
		}
		if first {
			first = false
			return unicode.ToUpper(r)
		}
		return unicode.ToLower(r)
	}, s)
}

func swapCase(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, s)
}
