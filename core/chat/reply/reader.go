package reply

import (
	"strings"

	"github.com/clademl/clade/core/chat/toolcall"
)

// Piece is what one step adds: text, or the text of a marker that was one token.
type Piece struct {
	Text  string
	Token string
}

// Part is what became certain: exactly one field is set, but Problem comes with the Text it is about.
type Part struct {
	Reasoning string
	Text      string
	Call      *toolcall.Call
	// Problem says why Text, which looks like a call, is not one.
	Problem string
}

// Format is how a model writes.
type Format struct {
	// Reasoning is nil for a model that does not reason.
	Reasoning *Reasoning
	// Calls are the syntaxes of its calls; nil when no tools were offered.
	Calls []*toolcall.Syntax
	Tools *toolcall.Tools
	// Tokens are the markers that come as Piece.Token.
	Tokens map[string]bool
}

// Markers are the texts of a format that may be single tokens.
func (f Format) Markers() []string {
	var out []string
	if f.Reasoning != nil {
		out = append(out, f.Reasoning.Open, f.Reasoning.Close)
	}
	for _, s := range f.Calls {
		out = append(out, s.Markers()...)
	}
	return out
}

// Reader splits one reply.
type Reader struct {
	thought splitter
	calls   scanner
}

// NewReader begins a reply. inside says that the prompt ended in an open thought.
func NewReader(f Format, inside bool) *Reader {
	return &Reader{thought: newSplitter(f, inside), calls: scanner{format: f, start: true}}
}

// Push takes a piece and gives what is certain now.
func (r *Reader) Push(p Piece) []Part {
	return r.pass(r.thought.push(p))
}

// End gives what was held.
func (r *Reader) End() []Part {
	out := r.pass(r.thought.end())
	return join(append(out, r.calls.end()...))
}

// pass sends what is outside of the reasoning on to the calls.
func (r *Reader) pass(in []thoughtPart) []Part {
	var out []Part
	for _, p := range in {
		if p.inside {
			out = append(out, Part{Reasoning: p.piece.Text})
			continue
		}
		out = append(out, r.calls.push(p.piece)...)
	}
	return join(out)
}

// join puts neighbours of one kind together.
func join(in []Part) []Part {
	var out []Part
	for _, p := range in {
		last := len(out) - 1
		switch {
		case p == Part{}:
		case last >= 0 && p.Text != "" && out[last].Text != "" && p.Problem == "" && out[last].Problem == "":
			out[last].Text += p.Text
		case last >= 0 && p.Reasoning != "" && out[last].Reasoning != "":
			out[last].Reasoning += p.Reasoning
		default:
			out = append(out, p)
		}
	}
	return out
}

// holdBack is the length of the longest end of text that begins one of some marks.
func holdBack(text string, marks []string) int {
	longest := 0
	for _, m := range marks {
		for n := min(len(m)-1, len(text)); n > longest; n-- {
			if strings.HasSuffix(text, m[:n]) {
				longest = n
			}
		}
	}
	return longest
}
