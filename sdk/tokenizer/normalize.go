package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer rewrites a text before it is pre-tokenized.
type normalizer interface {
	normalize(s string) (string, error)
}

type normalizers []normalizer

func (ns normalizers) normalize(s string) (string, error) {
	for _, n := range ns {
		var err error
		if s, err = n.normalize(s); err != nil {
			return "", err
		}
	}
	return s, nil
}

// prepend puts text in front of every text that is not empty.
type prepend string

func (p prepend) normalize(s string) (string, error) {
	if s == "" {
		return s, nil
	}
	return string(p) + s, nil
}

// lowercase maps each character by itself, as `tokenizers` does: no final sigma.
type lowercase struct{}

func (lowercase) normalize(s string) (string, error) {
	return strings.Map(toLower, dotted.Replace(s)), nil
}

// dotted gives İ its lower case of two characters, i and a dot above; Go's simple mapping gives only the i.
var dotted = strings.NewReplacer("İ", "i\u0307")

func toLower(r rune) rune {
	if l := unicode.ToLower(r); l != r || r < utf8.RuneSelf {
		return l
	}
	for _, x := range extraLower {
		if r >= x.lo && r <= x.hi {
			return r + x.delta
		}
	}
	return r
}

// replace puts content in the place of every match.
type replace struct {
	find    matcher
	content string
}

func (r replace) normalize(s string) (string, error) {
	if l, ok := r.find.(literal); ok {
		return strings.ReplaceAll(s, string(l), r.content), nil
	}
	var b strings.Builder
	at := 0
	err := r.find.matches(s, func(start, end int) error {
		b.WriteString(s[at:start])
		b.WriteString(r.content)
		at = end
		return nil
	})
	if err != nil {
		return "", err
	}
	b.WriteString(s[at:])
	return b.String(), nil
}

// unicodeForm is NFC, NFD, NFKC or NFKD.
type unicodeForm struct {
	form norm.Form
	keep *unicode.RangeTable // code points that `tokenizers`, whose tables are older, leaves as they are
}

func (f unicodeForm) normalize(s string) (string, error) {
	if ascii(s) {
		return s, nil
	}
	if strings.IndexFunc(s, f.kept) < 0 {
		return f.apply(s), nil
	}
	var b strings.Builder
	for len(s) > 0 {
		i := strings.IndexFunc(s, f.kept)
		if i < 0 {
			i = len(s)
		}
		b.WriteString(f.apply(s[:i]))
		if i == len(s) {
			break
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		b.WriteString(s[i : i+n])
		s = s[i+n:]
	}
	return b.String(), nil
}

func (f unicodeForm) kept(r rune) bool { return r >= 0x7FD && unicode.Is(f.keep, r) }

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// maxNonStarters is x/text's limit of a run of combining marks: behind it, x/text inserts U+034F (its "stream-safe"
// format), which Unicode normalization proper does not.
const maxNonStarters = 30

func (f unicodeForm) apply(s string) string {
	switch {
	case f.form.IsNormalString(s):
		return s
	case longMarks(s):
		return f.long(s)
	}
	return f.form.String(s)
}

// longMarks reports whether s may hold a run that x/text would break up. A decomposition adds at most 4 marks to a
// starter, hence the margin.
func longMarks(s string) bool {
	n := 0
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			n = 0
			i++
			continue
		}
		p := norm.NFKD.PropertiesString(s[i:])
		if p.CCC() == 0 && p.LeadCCC() == 0 {
			n = 0
		} else if n++; n > maxNonStarters/3 {
			return true
		}
		i += max(p.Size(), 1)
	}
	return false
}

// long is the algorithm of Unicode's section 3.11 in full: decompose, order canonically, compose.
func (f unicodeForm) long(s string) string {
	decompose, compose := norm.NFD, f.form == norm.NFC || f.form == norm.NFKC
	if f.form == norm.NFKC || f.form == norm.NFKD {
		decompose = norm.NFKD
	}
	var rs []rune
	for _, r := range s {
		for _, d := range decompose.String(string(r)) {
			rs = append(rs, d)
		}
	}
	cc := make([]uint8, len(rs))
	for i, r := range rs {
		cc[i] = norm.NFD.PropertiesString(string(r)).CCC()
	}
	orderMarks(rs, cc)
	if compose {
		rs = composeMarks(rs, cc)
	}
	return string(rs)
}
