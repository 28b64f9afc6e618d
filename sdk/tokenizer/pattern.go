package tokenizer

import (
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"

	"github.com/clademl/clade/sdk/contract"
)

// matcher finds the matches of a pattern in s, in order and without overlap.
type matcher interface {
	matches(s string, yield func(start, end int) error) error
}

// literal matches a fixed string.
type literal string

func (l literal) matches(s string, yield func(start, end int) error) error {
	for from := 0; ; {
		k := strings.Index(s[from:], string(l))
		if k < 0 {
			return nil
		}
		if err := yield(from+k, from+k+len(l)); err != nil {
			return err
		}
		from += k + len(l)
	}
}

func (sc scanner) matches(s string, yield func(start, end int) error) error {
	t := classes()
	for i := 0; i < len(s); {
		end := sc(t, s, i)
		if err := yield(i, end); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// patternTimeout bounds one search: a pattern of a model file may backtrack without end on some text.
const patternTimeout = 5 * time.Second

// regex is any other pattern. Oniguruma's Ruby syntax, which `tokenizers` uses, lets ^ and $ match at line ends.
type regex struct {
	re      *regexp2.Regexp
	pattern string
}

func newRegex(subject, pattern string) (matcher, error) {
	translated, err := fromOnig(pattern)
	if err != nil {
		return nil, unsupported(subject, "pattern %q is not understood: %w", pattern, err)
	}
	re, err := regexp2.Compile(translated, regexp2.Multiline)
	if err != nil {
		return nil, unsupported(subject, "pattern %q is not understood: %w", pattern, err)
	}
	re.MatchTimeout = patternTimeout
	return &regex{re: re, pattern: pattern}, nil
}

func (x *regex) matches(s string, yield func(start, end int) error) error {
	m, err := x.re.FindStringMatch(s)
	// Rune offsets of successive matches only grow, so byte offsets are found in one walk over s.
	runeAt, byteAt := 0, 0
	advance := func(to int) int {
		for ; runeAt < to; runeAt++ {
			byteAt += runeWidth(s, byteAt)
		}
		return byteAt
	}
	for ; m != nil && err == nil; m, err = x.re.FindNextMatch(m) {
		start := advance(m.RuneIndex)
		end := advance(m.RuneIndex + m.RuneLength)
		if err := yield(start, end); err != nil {
			return err
		}
	}
	if err != nil {
		return contract.Errorf(contract.InvalidArgument, "text", "split pattern %q gave up on it: %w", x.pattern, err)
	}
	return nil
}

func runeWidth(s string, i int) int {
	n, _, _ := sequence(s[i])
	return n
}
