package toolcall

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Shape is how a call ends.
type Shape int

// Shapes of calls.
const (
	// Enclosed calls end at their Close.
	Enclosed Shape = iota
	// Bracketed calls end where the brackets of their value are balanced.
	Bracketed
)

// Syntax is one way to write calls.
type Syntax struct {
	// Name says which, in messages.
	Name string
	// Open begins a call. An empty one begins where an answer does.
	Open  string
	Close string
	// Whole keeps Open and Close in the body.
	Whole bool
	Shape Shape
	// Starts are what a body of a Syntax without Open begins with.
	Starts string
	read   func(body string, t *Tools) ([]Call, error)
	json   bool // repairs of JSON are tried
}

// The syntaxes.
var (
	Tagged     = &Syntax{Name: "<tool_call>", Open: "<tool_call>", Close: "</tool_call>", read: readTagged, json: true}
	QwenBare   = &Syntax{Name: "<function=>", Open: "<function=", Close: "</function>", Whole: true, read: readQwen}
	Attributes = &Syntax{Name: "<function name>", Open: "<function name=", Close: "</function>", Whole: true, read: readAttributes}
	Gemma      = &Syntax{Name: "call:", Open: "<|tool_call>", Close: "<tool_call|>", read: readGemma, json: true}
	Pythonic   = &Syntax{Name: "<|tool_call_start|>", Open: "<|tool_call_start|>", Close: "<|tool_call_end|>", read: readPythonOrJSON, json: true}
	Mistral    = &Syntax{Name: "[TOOL_CALLS]", Open: "[TOOL_CALLS]", Shape: Bracketed, read: readMistral, json: true}
	PythonTag  = &Syntax{Name: "<|python_tag|>", Open: "<|python_tag|>", Shape: Bracketed, read: readPythonOrJSON, json: true}
	BareJSON   = &Syntax{Name: "JSON", Starts: "{", Shape: Bracketed, read: readJSON}
	BarePython = &Syntax{Name: "Python", Starts: "[", Shape: Bracketed, read: readPython}
)

// Detect chooses the syntaxes of a model: by its family's sentinels, then by the text of its template, the first hit wins. A model
// of which neither says anything gets the common ones.
func Detect(template, open, end string) []*Syntax {
	has := func(texts ...string) bool {
		return !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(template, s) })
	}
	for _, s := range []*Syntax{Gemma, Pythonic, Tagged} {
		if open == s.Open && end == s.Close && open != "" {
			return []*Syntax{s}
		}
	}
	switch {
	case has("<|tool_call>", "<tool_call|>"):
		return []*Syntax{Gemma}
	case has("<|tool_call_start|>"):
		return []*Syntax{Pythonic, BarePython}
	case has("[TOOL_CALLS]"):
		return []*Syntax{Mistral}
	case has("<tool_call>", "<function="):
		return []*Syntax{Tagged, QwenBare}
	case has(`<function name="`, `<param name="`):
		return []*Syntax{Attributes}
	case has("<tool_call>"):
		return []*Syntax{Tagged, BareJSON}
	case has("[func_name1(params_name1"):
		return []*Syntax{PythonTag, BarePython}
	case has("<|python_tag|>"), has(`"parameters": dictionary of argument name`):
		return []*Syntax{PythonTag, BareJSON}
	}
	return []*Syntax{Tagged, Attributes, BareJSON}
}

// Markers are the texts that may be single tokens of a vocabulary: where they are, only the token counts.
func (s *Syntax) Markers() []string {
	var out []string
	switch s {
	case Gemma:
		out = append(out, gemmaQuote)
	case Mistral:
		out = append(out, mistralArgs, mistralID)
	}
	if s.Open != "" && !s.Whole {
		out = append(out, s.Open)
	}
	if s.Close != "" && !s.Whole {
		out = append(out, s.Close)
	}
	return out
}

// Complete reports whether a body can be read as it is; the names of tools are not looked at.
func (s *Syntax) Complete(body string, t *Tools) bool {
	_, err := s.read(body, t)
	return err == nil
}

// InValue reports whether a closing marker at the end of body seems to be part of a value that is not closed.
func (s *Syntax) InValue(body string) bool {
	trimmed := strings.TrimSpace(body)
	switch {
	case s == Gemma && strings.HasPrefix(trimmed, "call:"):
		return strings.Count(body, gemmaQuote)%2 == 1
	case strings.HasPrefix(trimmed, "<function="):
		return opened(body, "<parameter=", "</parameter>")
	case strings.HasPrefix(trimmed, "<function name="):
		return opened(body, cdata, cdataEnd)
	case strings.HasPrefix(trimmed, "{"), strings.HasPrefix(trimmed, "["):
		return oddQuotes(trimmed)
	}
	return opened(body, "<arg_value>", "</arg_value>")
}

func opened(s, open, end string) bool { return strings.LastIndex(s, open) > strings.LastIndex(s, end) }

func oddQuotes(s string) bool {
	odd := false
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			odd = !odd
		}
	}
	return odd
}

// Quotes reports whether c begins and ends texts in which brackets do not count.
func (s *Syntax) Quotes(c byte) bool {
	return c == '"' || c == '\'' && (s == PythonTag || s == BarePython)
}

// Inner are markers in brackets that stand before a value.
func (s *Syntax) Inner() []string {
	if s == Mistral {
		return []string{mistralArgs, mistralID}
	}
	return nil
}

// keys of a call that is written in JSON, of which one comes first.
var firstKeys = []string{"name", "function", "type", "id", "arguments", "parameters"}

// Plausible reports whether the beginning of an answer may still become a call without a marker.
func (s *Syntax) Plausible(text string) bool {
	text = strings.TrimLeft(strings.TrimPrefix(text, s.Starts), " \t\r\n")
	if text == "" {
		return true
	}
	if s == BarePython {
		n := 0
		for n < len(text) && (wordByte(text[n]) || text[n] == '.') {
			n++
		}
		rest := strings.TrimLeft(text[n:], " ")
		return n > 0 && (rest == "" || rest[0] == '(')
	}
	if text[0] != '"' {
		return false
	}
	key, _, whole := strings.Cut(text[1:], `"`)
	return slices.ContainsFunc(firstKeys, func(k string) bool { return k == key || !whole && strings.HasPrefix(k, key) })
}

// NoCall reports whether what was taken for a call without a marker is simply something else.
func NoCall(s *Syntax, err error) bool { return s.Starts != "" && !errors.Is(err, errUnknown) }

// errUnknown is in the error about a tool that was not offered.
var errUnknown = errors.New("which was not offered")

// Read reads a body: strictly, then with repairs if the call was closed by its marker. An error says why the text is no call.
func (s *Syntax) Read(body string, closed bool, t *Tools) ([]Call, error) {
	calls, err := s.read(body, t)
	var mended []string
	if err != nil && closed && s.json {
		if fixed, how, failed := repairJSON(s.asJSON(body)); failed == nil {
			calls, mended, err = fixed, how, nil
		}
	}
	if err == nil && !closed {
		mended = append(mended, "no closing marker")
	}
	if err != nil {
		return nil, err
	}
	for i := range calls {
		if t != nil && !slices.Contains(t.names, calls[i].Name) {
			return nil, fmt.Errorf("names %q, %w", calls[i].Name, errUnknown)
		}
		calls[i].Repairs = mended
	}
	return calls, nil
}

// asJSON is a body as the repairs of JSON understand it.
func (s *Syntax) asJSON(body string) string {
	if s != Mistral {
		return body
	}
	body = strings.TrimSpace(body)
	k := strings.IndexByte(body, '{')
	if k <= 0 || body[0] == '[' {
		return body
	}
	name, _, _ := strings.Cut(body[:k], mistralID)
	name, _, _ = strings.Cut(name, mistralArgs)
	return `{"name": ` + quote(strings.TrimSpace(name)) + `, "arguments": ` + body[k:] + "}"
}

func readPythonOrJSON(body string, t *Tools) ([]Call, error) {
	s := strings.TrimSpace(body)
	if s == "" {
		return nil, errEmpty
	}
	if s[0] == '{' {
		return readJSON(s, t)
	}
	calls, err := readPython(s, t)
	if err != nil && s[0] == '[' {
		if fromJSON, jsonErr := readJSON(s, t); jsonErr == nil {
			return fromJSON, nil
		}
	}
	return calls, err
}

// Mistral's markers within a call.
const (
	mistralArgs = "[ARGS]"
	mistralID   = "[CALL_ID]"
)

// readMistral reads NAME[ARGS]{...}, NAME[CALL_ID]ID[ARGS]{...}, NAME{...} or a list of JSON.
func readMistral(body string, t *Tools) ([]Call, error) {
	s := strings.TrimSpace(body)
	if s == "" {
		return nil, errEmpty
	}
	if s[0] == '[' || s[0] == '{' {
		return readJSON(s, t)
	}
	k := strings.IndexByte(s, '{')
	if k < 0 {
		return nil, errors.New("has no arguments")
	}
	name, _, _ := strings.Cut(s[:k], mistralID)
	name, _, _ = strings.Cut(name, mistralArgs)
	args, err := objectOf([]byte(s[k:]))
	if err != nil || !valid(s[k:]) {
		return nil, errors.New("the arguments are not JSON")
	}
	return []Call{{Name: strings.TrimSpace(name), Arguments: args}}, nil
}
