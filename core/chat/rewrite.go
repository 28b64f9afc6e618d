package chat

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// The names under which a rewritten template reaches our own functions.
const (
	tickName   = "clade_tick"
	tickVar    = "clade_ticked"
	unpackVar  = "clade_unpacked"
	keptVar    = "clade_kept"
	printName  = "clade_print"
	raiseName  = "clade_raise"
	foldName   = "clade_fold"
	negName    = "clade_neg"
	inName     = "clade_in"
	attrName   = "clade_attr"
	itemName   = "clade_item"
	sliceName  = "clade_slice"
	methodName = "clade_method"
	filterName = "clade_filter"
	testName   = "clade_test"
	iterName   = "clade_iter"
)

// rewrite turns a template into one that the jinja library renders as Python's jinja2 does. The library cannot be
// interrupted, strips whitespace by other rules, knows fewer escapes and prints values in its own way. So whitespace
// control is resolved here, by the rules of jinja2's lexer with trim_blocks and lstrip_blocks; text becomes string
// literals, which nothing strips; expressions are rewritten by jinja2's grammar to call our functions (expression.go); and
// loop bodies and macros begin by calling clade_tick.
func rewrite(src string) (string, error) {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	src = strings.TrimSuffix(src, "\n") // jinja2's keep_trailing_newline is off
	w := rewriter{whole: src, src: src, lineStart: true}
	for {
		k := nextTag(w.src)
		if k < 0 {
			w.text(w.src)
			w.flush()
			if len(w.open) > 0 {
				return "", fmt.Errorf("a %s block is not closed", w.open[len(w.open)-1].kind)
			}
			return w.out.String(), nil
		}
		text := w.src[:k]
		open := w.src[k : k+2]
		w.src = w.src[k+2:]
		sign := w.sign()
		w.text(w.leading(text, sign, open != "{{"))
		var err error
		switch {
		case open == "{#":
			err = w.comment()
		case open == "{%" && w.rawBegin():
			err = w.raw()
		default:
			err = w.tag(open)
		}
		if err != nil {
			return "", fmt.Errorf("line %d: %w", w.line(), err)
		}
	}
}

// nextTag is where the next {{, {% or {# is.
func nextTag(s string) int {
	for at := 0; ; {
		k := strings.IndexByte(s[at:], '{')
		if k < 0 || at+k+1 >= len(s) {
			return -1
		}
		at += k
		switch s[at+1] {
		case '{', '%', '#':
			return at
		}
		at++
	}
}

type rewriter struct {
	whole     string
	src       string // what is left
	out       strings.Builder
	held      strings.Builder // text not written yet
	lineStart bool            // whether the part before src ended a line
	open      []block
	blocks    int // that were opened
}

// sign takes a - or + behind a tag's opening.
func (w *rewriter) sign() byte {
	if w.src != "" && (w.src[0] == '-' || w.src[0] == '+') {
		s := w.src[0]
		w.src = w.src[1:]
		return s
	}
	return 0
}

// leading is the text before a tag, less what the tag's sign or lstrip_blocks takes.
func (w *rewriter) leading(text string, sign byte, block bool) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, pythonSpace)
	case sign == '+' || !block:
		return text
	}
	line := strings.LastIndexByte(text, '\n') + 1
	if (line > 0 || w.lineStart) && strings.TrimLeftFunc(text[line:], pythonSpace) == "" {
		return text[:line]
	}
	return text
}

// pythonSpace is what Python's str.strip takes: four separators more than Unicode's White_Space.
func pythonSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1C && r <= 0x1F }

func (w *rewriter) text(s string) { w.held.WriteString(s) }

// flush writes the held text as a literal.
func (w *rewriter) flush() {
	if w.held.Len() == 0 {
		return
	}
	w.out.WriteString("{{" + printName + `("`)
	writeLiteral(&w.out, w.held.String(), '"')
	w.out.WriteString(`")}}`)
	w.held.Reset()
}

func writeLiteral(b *strings.Builder, s string, quote byte) {
	for i := range len(s) {
		if s[i] == '\\' || s[i] == quote {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
}

// trailing takes the whitespace behind a tag that ended with sign: all of it after -, one newline after a block or
// comment (trim_blocks), none after +.
func (w *rewriter) trailing(sign byte, block bool) {
	before := w.src
	switch {
	case sign == '-':
		w.src = strings.TrimLeftFunc(w.src, pythonSpace)
	case sign == 0 && block:
		w.src = strings.TrimPrefix(w.src, "\n")
	}
	w.lineStart = strings.HasSuffix(before[:len(before)-len(w.src)], "\n")
}

func (w *rewriter) comment() error {
	k := strings.Index(w.src, "#}")
	if k < 0 {
		return errors.New("a comment is not closed")
	}
	sign := byte(0)
	if k > 0 && (w.src[k-1] == '-' || w.src[k-1] == '+') {
		sign = w.src[k-1]
	}
	w.src = w.src[k+2:]
	w.trailing(sign, true)
	return nil
}

// rawBegin takes the rest of a raw tag if this is one.
func (w *rewriter) rawBegin() bool {
	rest, sign, ok := bareTag(w.src, "raw")
	if ok {
		w.src = rest
		if sign == '-' {
			w.src = strings.TrimLeftFunc(w.src, pythonSpace)
		}
		w.lineStart = false
	}
	return ok
}

// bareTag matches a tag of one word behind its opening.
func bareTag(s, word string) (rest string, sign byte, ok bool) {
	s, ok = strings.CutPrefix(strings.TrimLeftFunc(s, pythonSpace), word)
	if !ok {
		return "", 0, false
	}
	s = strings.TrimLeftFunc(s, pythonSpace)
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[0], s[1:]
	}
	rest, ok = strings.CutPrefix(s, "%}")
	return rest, sign, ok
}

func (w *rewriter) raw() error {
	for at := 0; ; at += 2 {
		k := strings.Index(w.src[at:], "{%")
		if k < 0 {
			return errors.New("a raw block is not closed")
		}
		at += k
		text := w.src[:at]
		behind := rewriter{src: w.src[at+2:]}
		open := behind.sign()
		rest, sign, ok := bareTag(behind.src, "endraw")
		if !ok {
			continue
		}
		w.text(w.leading(text, open, true))
		w.src = rest
		w.trailing(sign, true)
		return nil
	}
}

// tag rewrites an expression or a statement.
func (w *rewriter) tag(open string) error {
	t := tag{src: w.src, closer: "}}"}
	if open == "{%" {
		t.closer = "%}"
	}
	if err := t.read(); err != nil {
		return err
	}
	w.flush()
	line := w.line()
	w.src = w.src[t.i:]
	w.trailing(t.sign, open == "{%")
	if open == "{%" {
		return w.statement(t.tokens, line)
	}
	x := expression{tokens: t.tokens, line: line}
	w.out.WriteString("{{ " + printName + "(" + x.value() + ") }}")
	return x.end()
}

// line is the line of the template that is read now.
func (w *rewriter) line() int { return 1 + strings.Count(w.whole[:len(w.whole)-len(w.src)], "\n") }
