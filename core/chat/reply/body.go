package reply

import (
	"strings"

	"github.com/clademl/clade/core/chat/toolcall"
)

// body is what stands in an open call. It looks at each byte once, however it comes.
type body struct {
	syntax *toolcall.Syntax
	tokens map[string]bool
	tools  *toolcall.Tools

	text string
	// done: the call ends at end, and what follows it begins at rest. closed says that its marker or bracket ended it.
	done, closed bool
	end, rest    int
	// refused: what began like a call without a marker is none.
	refused bool

	seen  int // bytes of text that were looked at
	first int // where the first closing marker stands that seemed to be part of a value; 0: none
	depth int // open brackets
	quote byte
	slash bool
}

// maxName bounds what may stand before the first bracket of a call whose end is a bracket.
const maxName = 512

func (b *body) add(text string) {
	if b.done {
		b.text += text
		return
	}
	b.text += text
	if b.syntax.Shape == toolcall.Bracketed {
		b.bracketed()
	} else {
		b.enclosed()
	}
}

// endByToken ends the call at its closing marker, which is a token.
func (b *body) endByToken(token string) {
	if !b.done {
		b.finish(len(b.text), len(b.text)+len(token), true)
	}
	b.text += token
}

func (b *body) finish(end, rest int, closed bool) {
	b.done, b.end, b.rest, b.closed = true, end, rest, closed
}

// enclosed looks for the closing marker, and for a call that begins before this one was closed.
func (b *body) enclosed() {
	for !b.done {
		k, mark := b.next()
		if k < 0 {
			longest := max(len(b.syntax.Close), len(b.syntax.Open))
			b.seen = max(b.seen, len(b.text)-longest+1)
			return
		}
		b.seen = k + 1
		inside := b.inside(k)
		switch {
		case mark == b.syntax.Close && (b.syntax.Complete(inside, b.tools) || !b.syntax.InValue(inside)):
			b.finish(k, k+len(mark), true)
		case mark == b.syntax.Close && b.first == 0:
			b.first = k + 1
		case mark == b.syntax.Open && b.syntax.Complete(inside, b.tools):
			b.finish(k, k, false)
		}
	}
}

// next is the nearest marker that was not looked at.
func (b *body) next() (int, string) {
	at, mark := -1, ""
	for _, m := range []string{b.syntax.Close, b.syntax.Open} {
		if m == "" || b.tokens[m] || m == b.syntax.Open && b.syntax.Whole {
			continue
		}
		if k := strings.Index(b.text[b.seen:], m); k >= 0 && (at < 0 || b.seen+k < at) {
			at, mark = b.seen+k, m
		}
	}
	return at, mark
}

// inside is the body up to a closing marker at k.
func (b *body) inside(k int) string {
	if b.syntax.Whole && strings.HasPrefix(b.text[k:], b.syntax.Close) {
		return b.text[:k+len(b.syntax.Close)]
	}
	return b.text[:k]
}

// bracketed follows brackets and quotes to the end of the value.
func (b *body) bracketed() {
	for b.seen < len(b.text) && !b.done {
		n := b.step()
		if n == 0 {
			return // what comes next decides
		}
		b.seen += n
	}
	if b.done {
		return
	}
	b.refused = b.syntax.Starts != "" && !b.syntax.Plausible(b.text)
	if b.refused {
		b.finish(len(b.text), len(b.text), false)
	}
}

// step looks at one byte, or at a marker in brackets such as [ARGS], and says how many it took.
func (b *body) step() int {
	c := b.text[b.seen]
	switch {
	case b.depth == 0 && b.seen >= maxName:
		b.finish(b.seen, b.seen, false)
	case b.slash:
		b.slash = false
	case b.quote != 0:
		b.slash = c == '\\'
		if c == b.quote {
			b.quote = 0
		}
	case b.depth > 0 && b.syntax.Quotes(c):
		b.quote = c
	case c == '{' || c == '[' || c == '(':
		if b.depth == 0 {
			for _, m := range b.syntax.Inner() {
				if rest := b.text[b.seen:]; strings.HasPrefix(rest, m) {
					return len(m)
				} else if strings.HasPrefix(m, rest) {
					return 0
				}
			}
		}
		b.depth++
	case (c == '}' || c == ']' || c == ')') && b.depth > 0:
		if b.depth--; b.depth == 0 {
			b.finish(b.seen+1, b.seen+1, true)
		}
	}
	return 1
}

// settle decides on a call that the reply's end, or another call's beginning, ended.
func (b *body) settle() {
	switch {
	case b.done:
	case b.first > 0: // no later marker closed it better
		b.finish(b.first-1, b.first-1+len(b.syntax.Close), true)
	default:
		b.finish(len(b.text), len(b.text), false)
	}
	b.refused = b.syntax.Starts != "" && !b.syntax.Plausible(b.text[:b.rest])
}

// call is what stands in the call.
func (b *body) call() string {
	if b.syntax.Whole && b.closed {
		return b.text[:b.rest]
	}
	return b.text[:b.end]
}
