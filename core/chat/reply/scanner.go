package reply

import (
	"strings"

	"github.com/clademl/clade/core/chat/toolcall"
)

// scanner finds calls in the answer.
type scanner struct {
	format Format
	// start is the beginning of the answer, or what follows a call there: where calls without a marker are looked for.
	start bool
	held  string // text outside of a call that waits
	open  *toolcall.Syntax
	body  body
	gap   string // the white space before the open call
	after bool   // a call was the last that came out
}

func (s *scanner) push(p Piece) []Part {
	if len(s.format.Calls) == 0 {
		return []Part{{Text: p.Text}}
	}
	if s.open != nil {
		return s.within(p)
	}
	if p.Token != "" {
		return s.tokenOutside(p.Token)
	}
	s.held += p.Text
	return s.outside()
}

// tokenOutside begins a call at a marker that is one token. Other tokens say nothing.
func (s *scanner) tokenOutside(token string) []Part {
	for _, syntax := range s.format.Calls {
		if syntax.Open == token {
			text := strings.TrimRight(s.held, " \t\r\n")
			gap := s.held[len(text):]
			s.held = ""
			out := []Part{s.text(text)}
			s.begin(syntax, gap, "")
			return out
		}
	}
	return nil
}

func (s *scanner) begin(syntax *toolcall.Syntax, gap, first string) {
	s.open, s.gap = syntax, gap
	s.body = body{syntax: syntax, tokens: s.format.Tokens, tools: s.format.Tools}
	s.body.add(first)
}

// outside looks for the beginning of a call in held, as often as one is there.
func (s *scanner) outside() []Part {
	var out []Part
	for s.open == nil {
		if s.start && s.bare() {
			break
		}
		syntax, k := s.find()
		if syntax == nil {
			keep := holdBack(s.held, s.marks())
			text := strings.TrimRight(s.held[:len(s.held)-keep], " \t\r\n")
			s.held = s.held[len(text):]
			return append(out, s.text(text))
		}
		text := strings.TrimRight(s.held[:k], " \t\r\n")
		gap, rest := s.held[len(text):k], s.held[k:]
		if !syntax.Whole {
			rest = rest[len(syntax.Open):]
		}
		s.held = ""
		out = append(out, s.text(text))
		s.begin(syntax, gap, rest)
	}
	return append(out, s.settle()...)
}

// bare begins a call without a marker, if the answer begins like one.
func (s *scanner) bare() bool {
	text := strings.TrimLeft(s.held, " \t\r\n")
	if text == "" {
		return false
	}
	for _, syntax := range s.format.Calls {
		if syntax.Starts != "" && strings.HasPrefix(text, syntax.Starts) {
			gap := s.held[:len(s.held)-len(text)]
			s.held = ""
			s.begin(syntax, gap, text)
			return true
		}
	}
	return false
}

// marks are the beginnings of calls that are looked for in the text.
func (s *scanner) marks() []string {
	var out []string
	for _, syntax := range s.format.Calls {
		if syntax.Open != "" && !s.format.Tokens[syntax.Open] {
			out = append(out, syntax.Open)
		}
	}
	return out
}

// find is the first beginning of a call.
func (s *scanner) find() (*toolcall.Syntax, int) {
	var first *toolcall.Syntax
	at := len(s.held)
	for _, syntax := range s.format.Calls {
		if syntax.Open == "" || s.format.Tokens[syntax.Open] {
			continue
		}
		if k := strings.Index(s.held, syntax.Open); k >= 0 && k < at {
			first, at = syntax, k
		}
	}
	return first, at
}

func (s *scanner) within(p Piece) []Part {
	switch {
	case p.Token != "" && p.Token == s.open.Close:
		s.body.endByToken(p.Token)
	case p.Token != "" && p.Token == s.open.Open:
		out := s.finish() // another call begins before this one was closed
		return append(out, s.push(p)...)
	default:
		s.body.add(p.Text + p.Token)
	}
	return s.settle()
}

// settle ends the open call if its body is at an end, and goes on behind it.
func (s *scanner) settle() []Part {
	if s.open == nil || !s.body.done {
		return nil
	}
	return s.finish()
}

// finish reads the body: calls, or the text that it is.
func (s *scanner) finish() []Part {
	syntax, b := s.open, &s.body
	b.settle()
	s.open = nil
	s.held = b.text[b.rest:]
	var out []Part
	calls, err := syntax.Read(b.call(), b.closed, s.format.Tools)
	switch {
	case b.refused || err != nil && toolcall.NoCall(syntax, err):
		// It only began like a call: what follows its beginning is looked at as any text.
		s.start, s.after = false, false
		out = append(out, Part{Text: s.gap + syntax.Starts})
		s.held = b.text[len(syntax.Starts):]
	case err != nil:
		s.start, s.after = false, false
		out = append(out, Part{Text: s.gap + s.opening(syntax) + b.text[:b.rest], Problem: "a call in " + syntax.Name + " was not read: it " + err.Error()})
	}
	for i := range calls {
		if part := (Part{Call: &calls[i]}); err == nil && !b.refused {
			out, s.after = append(out, part), true
		}
	}
	return append(out, s.outside()...)
}

// opening is the text of the marker that began the open call.
func (s *scanner) opening(syntax *toolcall.Syntax) string {
	if syntax.Whole {
		return ""
	}
	return syntax.Open
}

// text is text of the answer. What separates it from a call before it is left out.
func (s *scanner) text(text string) Part {
	if s.after {
		text = strings.TrimLeft(text, " \t\r\n")
	}
	if text != "" {
		s.start, s.after = false, false
	}
	return Part{Text: text}
}

func (s *scanner) end() []Part {
	var out []Part
	for s.open != nil {
		out = append(out, s.finish()...)
	}
	text := s.held
	s.held = ""
	return append(out, s.text(text))
}
