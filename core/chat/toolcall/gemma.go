package toolcall

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// gemmaQuote stands around texts in Gemma's calls.
const gemmaQuote = `<|"|>`

// readGemma reads call:NAME{key:value,...}, once or more: bare keys, texts in <|"|>, nested {} and [].
func readGemma(body string, _ *Tools) ([]Call, error) {
	g := gemma{s: strings.TrimSpace(body)}
	var out []Call
	for g.err == nil && g.s != "" {
		after, ok := strings.CutPrefix(g.s, "call:")
		if !ok {
			return nil, errors.New("does not begin with the word call")
		}
		k := strings.IndexByte(after, '{')
		if k < 0 {
			return nil, errors.New("has no arguments in braces")
		}
		c := Call{Name: strings.TrimSpace(after[:k])}
		g.s = after[k:]
		c.Arguments = g.value(0)
		out = append(out, c)
		g.s = strings.TrimLeft(g.s, " \t\r\n,;")
	}
	if len(out) == 0 && g.err == nil {
		return nil, errEmpty
	}
	return out, g.err
}

type gemma struct {
	s   string
	err error
}

func (g *gemma) fail(text string) string {
	if g.err == nil {
		g.err = fmt.Errorf("%s before %.20q", text, g.s)
	}
	return "null"
}

func (g *gemma) space() { g.s = strings.TrimLeft(g.s, " \t\r\n") }

func (g *gemma) take(mark string) bool {
	g.space()
	after, ok := strings.CutPrefix(g.s, mark)
	if ok && g.err == nil {
		g.s = after
		return true
	}
	return false
}

func (g *gemma) value(depth int) string {
	if depth > maxNesting {
		return g.fail("a value is nested too deep")
	}
	switch {
	case g.err != nil:
		return "null"
	case g.take("{"):
		return g.object(depth)
	case g.take("["):
		var items []string
		for g.err == nil && !g.take("]") {
			items = append(items, g.value(depth+1))
			g.comma("]")
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	if text, ok := g.text(); ok {
		return quote(text)
	}
	return g.bare()
}

func (g *gemma) object(depth int) string {
	var m members
	for g.err == nil && !g.take("}") {
		key, quoted := g.text()
		if !quoted {
			k := strings.IndexAny(g.s, ":{}[],")
			if k < 0 || g.s[k] != ':' {
				return g.fail("a key has no value")
			}
			key, g.s = strings.TrimSpace(g.s[:k]), g.s[k:]
		}
		if !g.take(":") {
			return g.fail("a key has no value")
		}
		m.set(key, g.value(depth+1))
		g.comma("}")
	}
	return m.String()
}

func (g *gemma) comma(end string) {
	g.space()
	if !strings.HasPrefix(g.s, end) && !g.take(",") {
		g.fail("a value does not end")
	}
}

// text reads a text in Gemma's quotes, or in JSON's.
func (g *gemma) text() (string, bool) {
	g.space()
	if g.take(gemmaQuote) {
		inside, after, ok := strings.Cut(g.s, gemmaQuote)
		if !ok {
			g.fail("a text is not closed")
		}
		g.s = after
		return inside, true
	}
	if strings.HasPrefix(g.s, `"`) {
		d := json.NewDecoder(strings.NewReader(g.s))
		var s string
		if d.Decode(&s) == nil {
			g.s = g.s[d.InputOffset():]
			return s, true
		}
	}
	return "", false
}

// bare is a value without quotes: a word or number of JSON, else a text.
func (g *gemma) bare() string {
	k := strings.IndexAny(g.s, ",}]")
	if k < 0 {
		return g.fail("a value does not end")
	}
	text := strings.TrimSpace(g.s[:k])
	g.s = g.s[k:]
	switch {
	case text == "":
		return g.fail("a value is missing")
	case json.Valid([]byte(text)):
		return text
	}
	if v, ok := pythonLiteral(text); ok {
		return v
	}
	return quote(text)
}
