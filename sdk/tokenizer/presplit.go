package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// class matches each character of the given classes.
type class uint16

func (c class) matches(s string, yield func(start, end int) error) error {
	t := classes()
	for i := 0; i < len(s); {
		bits, n := t.at(s, i)
		if bits&uint16(c) != 0 {
			if err := yield(i, i+n); err != nil {
				return err
			}
		}
		i += n
	}
	return nil
}

// digitsStep is Digits: numbers stand apart, whole or digit by digit.
type digitsStep struct{ individual bool }

func (d digitsStep) pieces(s string, first bool, yield yield) error {
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
		if err := yield(s[i:end], first && i == 0); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// fields is WhitespaceSplit: what stands between whitespace.
type fields struct{}

func (fields) pieces(s string, first bool, yield yield) error {
	t := classes()
	for i := 0; i < len(s); {
		start := run(t, s, i, space)
		i = runNot(t, s, start, space)
		if start < i {
			if err := yield(s[start:i], first && start == 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// words is Whitespace: runs of word characters and runs of what is neither word nor whitespace.
type words struct{}

func (words) pieces(s string, first bool, yield yield) error {
	t := classes()
	for i := 0; i < len(s); {
		c, n := t.at(s, i)
		start := i
		switch {
		case c&word != 0:
			i = run(t, s, i+n, word)
		case c&space != 0:
			i += n
			continue
		default:
			i = runNot(t, s, i+n, word|space)
		}
		if err := yield(s[start:i], first && start == 0); err != nil {
			return err
		}
	}
	return nil
}

// metaspace is Metaspace: spaces become mark, and a piece begins at each mark.
type metaspace struct {
	mark    string
	prepend prependScheme
	split   bool
}

type prependScheme string

const (
	prependAlways prependScheme = "always"
	prependFirst  prependScheme = "first"
	prependNever  prependScheme = "never"
)

func (m metaspace) pieces(s string, first bool, yield yield) error {
	s = strings.ReplaceAll(s, " ", m.mark)
	if (m.prepend == prependAlways || m.prepend == prependFirst && first) && !strings.HasPrefix(s, m.mark) {
		s = m.mark + s
	}
	if !m.split {
		return yield(s, first)
	}
	for start := 0; start < len(s); {
		end := len(s)
		_, width := utf8.DecodeRuneInString(s[start:])
		if k := strings.Index(s[start+width:], m.mark); k >= 0 {
			end = start + width + k
		}
		if err := yield(s[start:end], first && start == 0); err != nil {
			return err
		}
		start = end
	}
	return nil
}

// scripts is UnicodeScripts: a piece ends where the script changes. Japanese kana count as Han, and a space belongs to any
// script. As in `tokenizers`, what comes before the first character of a script is lost.
type scripts struct{}

const anyScript = 0

func (scripts) pieces(s string, first bool, yield yield) error {
	t := classes()
	start, last := -1, uint16(anyScript)
	for i, r := range s {
		script := t.script(r)
		if script == anyScript || script == last {
			continue
		}
		if start >= 0 {
			if err := yield(s[start:i], first && start == 0); err != nil {
				return err
			}
		}
		start, last = i, script
	}
	if start < 0 {
		return nil
	}
	return yield(s[start:], first && start == 0)
}

// fixedLength is FixedLength: pieces of that many characters.
type fixedLength int

func (n fixedLength) pieces(s string, first bool, yield yield) error {
	start, count := 0, 0
	for i := range s {
		if count == int(n) {
			if err := yield(s[start:i], first && start == 0); err != nil {
				return err
			}
			start, count = i, 0
		}
		count++
	}
	if start == len(s) {
		return nil
	}
	return yield(s[start:], first && start == 0)
}

// digitGroups sets numbers apart and cuts them into threes from the right, the first group being what is left.
type digitGroups struct{}

func (digitGroups) pieces(s string, first bool, yield yield) error {
	t := classes()
	for i := 0; i < len(s); {
		c, n := t.at(s, i)
		if c&number == 0 {
			end := runNot(t, s, i+n, number)
			if err := yield(s[i:end], first && i == 0); err != nil {
				return err
			}
			i = end
			continue
		}
		stop := run(t, s, i, number)
		for left := utf8.RuneCountInString(s[i:stop]); left > 0; {
			size := (left-1)%3 + 1
			end := digits(t, s, i, size)
			if err := yield(s[i:end], first && i == 0); err != nil {
				return err
			}
			i, left = end, left-size
		}
	}
	return nil
}
