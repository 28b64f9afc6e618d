package tokenizer

import (
	"strings"
)

// step is one pre-tokenizer: it gives the pieces of s, none of them empty.
type step interface {
	pieces(s string, yield func(piece string) error) error
}

// scanStep splits by a pattern that matches everywhere.
type scanStep struct{ next scanner }

func (p scanStep) pieces(s string, yield func(string) error) error {
	t := classes()
	for i := 0; i < len(s); {
		end := p.next(t, s, i)
		if err := yield(s[i:end]); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// prefixSpace is ByteLevel's add_prefix_space.
type prefixSpace struct{}

func (prefixSpace) pieces(s string, yield func(string) error) error {
	if !strings.HasPrefix(s, " ") {
		s = " " + s
	}
	return yield(s)
}

// byteChars is ByteLevel's mapping of bytes to characters, where another step follows it.
type byteChars struct{}

func (byteChars) pieces(s string, yield func(string) error) error {
	return yield(string(appendByteLevel(make([]byte, 0, 2*len(s)), s)))
}

// digitsStep is Digits: numbers stand apart, whole or digit by digit.
type digitsStep struct{ individual bool }

func (d digitsStep) pieces(s string, yield func(string) error) error {
	t := classes()
	for i := 0; i < len(s); {
		c, n := t.at(s, i)
		end := i + n
		switch {
		case c&numeric == 0:
			end = runNot(t, s, end, numeric)
		case !d.individual:
			end = run(t, s, end, numeric)
		}
		if err := yield(s[i:end]); err != nil {
			return err
		}
		i = end
	}
	return nil
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

func (p splitStep) pieces(s string, yield func(string) error) error {
	spans, err := p.spans(s)
	if err != nil {
		return err
	}
	for _, sp := range p.arrange(spans) {
		if sp.start == sp.end {
			continue
		}
		if err := yield(s[sp.start:sp.end]); err != nil {
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
