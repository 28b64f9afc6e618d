package tokenizer

import (
	"strings"
)

// step is one pre-tokenizer: it gives the pieces of s, none of them empty. first says that s begins where the text begins,
// which Metaspace wants to know.
type step interface {
	pieces(s string, first bool, yield yield) error
}

type yield func(piece string, first bool) error

// scanStep splits by a pattern that matches everywhere.
type scanStep struct{ next scanner }

func (p scanStep) pieces(s string, first bool, yield yield) error {
	t := classes()
	for i := 0; i < len(s); {
		end := p.next(t, s, i)
		if err := yield(s[i:end], first && i == 0); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// prefixSpace is ByteLevel's add_prefix_space.
type prefixSpace struct{}

func (prefixSpace) pieces(s string, first bool, yield yield) error {
	if !strings.HasPrefix(s, " ") {
		s = " " + s
	}
	return yield(s, first)
}

// byteChars is ByteLevel's mapping of bytes to characters, where another step follows it.
type byteChars struct{}

func (byteChars) pieces(s string, first bool, yield yield) error {
	return yield(string(appendByteLevel(make([]byte, 0, 2*len(s)), s)), first)
}

// behavior says what becomes of a split's matches.
type behavior string

const (
	removed            behavior = "Removed"
	isolated           behavior = "Isolated"
	contiguous         behavior = "Contiguous"
	mergedWithPrevious behavior = "MergedWithPrevious"
	mergedWithNext     behavior = "MergedWithNext"
)

// splitStep is Split.
type splitStep struct {
	find   matcher
	do     behavior
	invert bool
}

type span struct {
	start, end int
	match      bool
}

func (p splitStep) pieces(s string, first bool, yield yield) error {
	spans, err := p.spans(s)
	if err != nil {
		return err
	}
	for _, sp := range p.arrange(spans) {
		if sp.start == sp.end {
			continue
		}
		if err := yield(s[sp.start:sp.end], first && sp.start == 0); err != nil {
			return err
		}
	}
	return nil
}

// spans cuts s into matches and what lies between them.
func (p splitStep) spans(s string) ([]span, error) {
	var spans []span
	at := 0
	err := p.find.matches(s, func(start, end int) error {
		if at != start {
			spans = append(spans, span{at, start, p.invert})
		}
		spans = append(spans, span{start, end, !p.invert})
		at = end
		return nil
	})
	if at != len(s) {
		spans = append(spans, span{at, len(s), p.invert})
	}
	return spans, err
}

func (p splitStep) arrange(spans []span) []span {
	out := spans[:0:0]
	switch p.do {
	case removed:
		for _, sp := range spans {
			if !sp.match {
				out = append(out, sp)
			}
		}
	case contiguous:
		for i, sp := range spans {
			if i > 0 && spans[i-1].match == sp.match {
				out[len(out)-1].end = sp.end
			} else {
				out = append(out, sp)
			}
		}
	case mergedWithPrevious:
		for i, sp := range spans {
			if sp.match && i > 0 && !spans[i-1].match {
				out[len(out)-1].end = sp.end
			} else {
				out = append(out, sp)
			}
		}
	case mergedWithNext:
		for i, sp := range spans {
			if i > 0 && spans[i-1].match && !sp.match {
				out[len(out)-1].end = sp.end
			} else {
				out = append(out, sp)
			}
		}
	default:
		return spans
	}
	return out
}
