package tokenizer

import "strings"

// Hand-written scanners for the split patterns of published models. Each gives the end of the match that begins at s[i];
// these patterns match at every position, so a text is the concatenation of its matches. The alternatives are tried in
// the pattern's order, and greedy repetition is resolved by hand where a later part forces it to give back.

type scanner func(t *classTable, s string, i int) int

// The patterns that have a scanner, by their exact spelling in tokenizer.json.
const (
	patternGPT2    = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternGPT2Alt = `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternMiniCPM = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen35  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

const noDigitLimit = int(^uint(0) >> 1)

var scanners = map[string]scanner{
	patternGPT2:    scanGPT2,
	patternGPT2Alt: scanGPT2,
	patternLlama3:  scanCL100K(letter, 3),
	patternQwen2:   scanCL100K(letter, 1),
	patternMiniCPM: scanCL100K(letter, noDigitLimit),
	patternQwen35:  scanCL100K(letter|mark, 1),
}

// run is the end of the run of characters of the given classes that begins at s[i].
func run(t *classTable, s string, i int, bits uint16) int {
	for i < len(s) {
		c, n := t.at(s, i)
		if c&bits == 0 {
			break
		}
		i += n
	}
	return i
}

// runNot is the end of the run of characters of none of the given classes.
func runNot(t *classTable, s string, i int, bits uint16) int {
	for i < len(s) {
		c, n := t.at(s, i)
		if c&bits != 0 {
			break
		}
		i += n
	}
	return i
}

// spaces matches \s+(?!\S)|\s+ at a whitespace character: the run up to the end of the text, or all of the run but its
// last character when something follows, or that one character.
func spaces(t *classTable, s string, i int) int {
	last := i
	for j := i; j < len(s); {
		c, n := t.at(s, j)
		if c&space == 0 {
			if last > i {
				return last
			}
			return j
		}
		last = j
		j += n
	}
	return len(s)
}

func scanGPT2(t *classTable, s string, i int) int {
	if s[i] == '\'' {
		if n := contraction(s[i+1:]); n > 0 {
			return i + 1 + n
		}
	}
	j := i
	if s[i] == ' ' && i+1 < len(s) {
		j++
	}
	c, n := t.at(s, j)
	switch {
	case c&letter != 0:
		return run(t, s, j+n, letter)
	case c&number != 0:
		return run(t, s, j+n, number)
	case c&space == 0:
		return runNot(t, s, j+n, space|letter|number)
	}
	return spaces(t, s, i)
}

// contraction is the length of s, t, re, ve, m, ll or d at the start of s.
func contraction(s string) int {
	if s == "" {
		return 0
	}
	switch s[0] {
	case 's', 't', 'm', 'd':
		return 1
	}
	if strings.HasPrefix(s, "re") || strings.HasPrefix(s, "ve") || strings.HasPrefix(s, "ll") {
		return 2
	}
	return 0
}

// foldedContraction is contraction under (?i:): the long s, U+017F, folds to s.
func foldedContraction(s string) int {
	if s == "" {
		return 0
	}
	switch s[0] | 0x20 {
	case 's', 't', 'm', 'd':
		return 1
	case 'r', 'v':
		if len(s) > 1 && s[1]|0x20 == 'e' {
			return 2
		}
	case 'l':
		if len(s) > 1 && s[1]|0x20 == 'l' {
			return 2
		}
	}
	if strings.HasPrefix(s, "ſ") {
		return len("ſ")
	}
	return 0
}

// scanCL100K is the pattern of OpenAI's cl100k as Hugging Face models spell it. wordBits are the classes of a word, and
// numbers are cut after maxDigits.
func scanCL100K(wordBits uint16, maxDigits int) scanner {
	return func(t *classTable, s string, i int) int {
		if s[i] == '\'' {
			if n := foldedContraction(s[i+1:]); n > 0 {
				return i + 1 + n
			}
		}
		c, n := t.at(s, i)
		switch {
		case c&wordBits != 0:
			return run(t, s, i+n, wordBits)
		case c&number != 0:
			return digits(t, s, i+n, maxDigits-1)
		}
		newline := s[i] == '\n' || s[i] == '\r'
		next, width := t.at(s, i+n)
		if !newline && next&wordBits != 0 {
			return run(t, s, i+n+width, wordBits)
		}
		if c&space == 0 {
			return newlines(s, runNot(t, s, i+n, space|wordBits|number))
		}
		if s[i] == ' ' && width > 0 && next&(space|wordBits|number) == 0 {
			return newlines(s, runNot(t, s, i+n+width, space|wordBits|number))
		}
		return spacesOrLines(t, s, i)
	}
}

func digits(t *classTable, s string, i, limit int) int {
	for ; limit > 0; limit-- {
		c, n := t.at(s, i)
		if c&number == 0 {
			break
		}
		i += n
	}
	return i
}

func newlines(s string, i int) int {
	for i < len(s) && (s[i] == '\n' || s[i] == '\r') {
		i++
	}
	return i
}

// spacesOrLines matches \s*[\r\n]+|\s+(?!\S)|\s+ at a whitespace character: up to the last line end of the run if it has
// one, else as spaces does.
func spacesOrLines(t *classTable, s string, i int) int {
	end := run(t, s, i, space)
	if k := strings.LastIndexAny(s[i:end], "\r\n"); k >= 0 {
		return i + k + 1
	}
	return spaces(t, s, i)
}
