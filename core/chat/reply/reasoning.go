package reply

import (
	"strings"
)

// Reasoning is how a model marks its thoughts.
type Reasoning struct {
	Open, Close string
	// Label is what stands between Open and the thought, such as the name of a channel; a channel of another name is part of the
	// answer.
	Label string
}

// Known ways to mark thoughts.
var (
	ThinkTags    = Reasoning{Open: "<think>", Close: "</think>"}
	GemmaChannel = Reasoning{Open: "<|channel>", Close: "<channel|>", Label: "thought\n"}
	BracketTags  = Reasoning{Open: "[THINK]", Close: "[/THINK]"}
)

// DetectReasoning chooses by a family's sentinels, then by the template's text; nil for a model that does not reason.
func DetectReasoning(template, open, end string) *Reasoning {
	for _, known := range []Reasoning{GemmaChannel, ThinkTags, BracketTags} {
		if open == known.Open && end == known.Close {
			return &known
		}
	}
	if open != "" && end != "" {
		return &Reasoning{Open: open, Close: end}
	}
	for _, known := range []Reasoning{GemmaChannel, ThinkTags, BracketTags} {
		if strings.Contains(template, known.Open) || strings.Contains(template, known.Close) {
			return &known
		}
	}
	return nil
}

// Inside reports whether a rendered prompt ends in a thought that it opened. What a message says is not looked at.
func (r *Reasoning) Inside(prompt string) bool {
	return r != nil && strings.HasSuffix(strings.TrimRight(prompt, " \t\r\n"), r.Open+strings.TrimSpace(r.Label))
}

type thoughtPart struct {
	inside bool
	piece  Piece
}

// splitter cuts the reasoning out. A thought's white space at both ends, and what separates it from the answer, are left out.
type splitter struct {
	mark   *Reasoning
	tokens map[string]bool
	inside bool
	// held waits: the beginning of a marker, white space that may end a thought, or the label of a channel that just opened.
	held     string
	label    bool // held is to begin with the label
	begun    bool // the thought has text
	trim     bool // white space before the answer is left out
	answered bool // text of the answer came before
}

func newSplitter(f Format, inside bool) splitter {
	return splitter{mark: f.Reasoning, tokens: f.Tokens, inside: inside && f.Reasoning != nil}
}

func (s *splitter) push(p Piece) []thoughtPart {
	if s.mark == nil {
		return []thoughtPart{{piece: p}}
	}
	switch {
	case p.Token == "":
		return s.text(p.Text)
	case p.Token == s.mark.Open && !s.inside:
		out := s.release()
		s.open()
		return out
	case p.Token == s.mark.Close && s.inside:
		out := s.settleLabel()
		if s.inside {
			s.close()
		}
		return out
	}
	if s.inside {
		if s.label && s.held != strings.TrimSpace(s.mark.Label) { // a channel whose label never came is the answer's
			text := s.held
			s.inside, s.label, s.held = false, false, ""
			return append(s.answer(text), s.push(p)...)
		}
		s.label = false
		return nil // a marker of calls within a thought is no call
	}
	return append(s.release(), thoughtPart{piece: p})
}

func (s *splitter) open() {
	s.inside, s.begun, s.held, s.label = true, false, "", s.mark.Label != ""
}

func (s *splitter) close() {
	s.inside, s.held, s.label, s.trim = false, "", false, true
}

// settleLabel ends the wait for a label: one that cannot come any more was text of the answer.
func (s *splitter) settleLabel() []thoughtPart {
	if !s.label || strings.HasPrefix(s.mark.Label, s.held) {
		return nil
	}
	text := s.held
	s.inside, s.label, s.held = false, false, ""
	return s.answer(text)
}

func (s *splitter) text(text string) []thoughtPart {
	s.held += text
	var out []thoughtPart
	for {
		before := s.held
		var more []thoughtPart
		var again bool
		if s.inside {
			more, again = s.within()
		} else {
			more, again = s.outside()
		}
		out = append(out, more...)
		if !again || s.held == before {
			return out
		}
	}
}

// within works on held inside of a thought; again says that there may be more to find.
func (s *splitter) within() (out []thoughtPart, again bool) {
	if s.label {
		switch {
		case strings.HasPrefix(s.held, s.mark.Label):
			s.held, s.label = s.held[len(s.mark.Label):], false
		case strings.HasPrefix(s.mark.Label, s.held):
			return nil, false
		default:
			return s.settleLabel(), true
		}
	}
	if !s.begun {
		s.held = strings.TrimLeft(s.held, " \t\r\n")
	}
	if !s.tokens[s.mark.Close] {
		if k := strings.Index(s.held, s.mark.Close); k >= 0 {
			rest := s.held[k+len(s.mark.Close):]
			out = s.thought(strings.TrimRight(s.held[:k], " \t\r\n"))
			s.close()
			s.held = rest
			return out, true
		}
	}
	keep := 0
	if !s.tokens[s.mark.Close] {
		keep = holdBack(s.held, []string{s.mark.Close})
	}
	certain := strings.TrimRight(s.held[:len(s.held)-keep], " \t\r\n")
	out = s.thought(certain)
	s.held = s.held[len(certain):]
	return out, false
}

func (s *splitter) thought(text string) []thoughtPart {
	if text == "" {
		return nil
	}
	s.begun = true
	return []thoughtPart{{inside: true, piece: Piece{Text: text}}}
}

// outside works on held outside of a thought.
func (s *splitter) outside() (out []thoughtPart, again bool) {
	if s.tokens[s.mark.Open] {
		text := s.held
		s.held = ""
		return s.answer(text), false
	}
	if k := strings.Index(s.held, s.mark.Open); k >= 0 {
		before, rest := s.held[:k], s.held[k+len(s.mark.Open):]
		if strings.TrimSpace(before) != "" || s.answered {
			out = s.answer(before)
		}
		s.open()
		s.held = rest
		return out, true
	}
	keep := holdBack(s.held, []string{s.mark.Open})
	if !s.answered && strings.TrimSpace(s.held[:len(s.held)-keep]) == "" {
		keep = len(s.held) // white space before a first thought is not the answer's
	}
	text := s.held[:len(s.held)-keep]
	s.held = s.held[len(text):]
	return s.answer(text), false
}

func (s *splitter) answer(text string) []thoughtPart {
	if s.trim {
		text = strings.TrimLeft(text, " \t\r\n")
	}
	if text == "" {
		return nil
	}
	s.trim, s.answered = false, true
	return []thoughtPart{{piece: Piece{Text: text}}}
}

// release gives what was held outside of a thought.
func (s *splitter) release() []thoughtPart {
	text := s.held
	s.held = ""
	if strings.TrimSpace(text) == "" && !s.answered {
		return nil
	}
	return s.answer(text)
}

func (s *splitter) end() []thoughtPart {
	if s.mark == nil {
		return nil
	}
	if s.inside {
		if out := s.settleLabel(); out != nil || s.label {
			return out
		}
		out := s.thought(strings.TrimRight(s.held, " \t\r\n"))
		s.held = ""
		return out
	}
	text := s.held
	s.held = ""
	return s.answer(text)
}
