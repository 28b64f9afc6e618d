package tokenizer

import (
	"errors"
	"strings"
)

// Patterns in tokenizer.json are Oniguruma's, in Ruby's syntax; regexp2 reads .NET's. The two differ in possessive quantifiers
// (a++), in what \w and \h stand for, and in the letter of the option that lets . match a line end.

// onigWord is Oniguruma's \w within a class: letters, marks, numbers, connectors and the circled and squared letters.
const onigWord = `\p{L}\p{M}\p{N}\p{Pc}\u24B6-\u24E9` + "\U0001F130-\U0001F149\U0001F150-\U0001F169\U0001F170-\U0001F189"

// fromOnig rewrites a pattern for regexp2.
func fromOnig(pattern string) (string, error) {
	t := onigReader{src: pattern, atom: -1}
	for t.i < len(t.src) {
		if err := t.next(); err != nil {
			return "", err
		}
	}
	return string(t.out), nil
}

type onigReader struct {
	src  string
	i    int
	out  []byte
	open []int // where the groups that are open begin in out
	atom int   // where the last atom begins in out, -1 for none
}

func (t *onigReader) next() error {
	switch c := t.src[t.i]; c {
	case '\\':
		return t.escape()
	case '[':
		t.atom = len(t.out)
		return t.class()
	case '(':
		t.open = append(t.open, len(t.out))
		t.atom = -1
		return t.group()
	case ')':
		if n := len(t.open); n > 0 {
			t.atom, t.open = t.open[n-1], t.open[:n-1]
		}
		t.copy(1)
	case '|':
		t.atom = -1
		t.copy(1)
	case '*', '+', '?':
		return t.quantifier(1)
	case '{':
		if n := interval(t.src[t.i:]); n > 0 {
			return t.quantifier(n)
		}
		t.atom = len(t.out)
		t.out = append(t.out, `\{`...)
		t.i++
	default:
		t.atom = len(t.out)
		n := runeWidth(t.src, t.i)
		t.copy(min(n, len(t.src)-t.i))
	}
	return nil
}

func (t *onigReader) copy(n int) {
	t.out = append(t.out, t.src[t.i:t.i+n]...)
	t.i += n
}

// quantifier copies one of n bytes; a + behind *, + or ? makes the atom possessive, which .NET spells as an atomic group. A
// + behind {n,m} repeats the whole.
func (t *onigReader) quantifier(n int) error {
	if t.atom < 0 {
		return errors.New("a quantifier has nothing to repeat")
	}
	simple := n == 1
	if strings.HasPrefix(t.src[t.i:], "{,") {
		t.out = append(t.out, "{0"...)
		t.i, n = t.i+1, n-1
	}
	t.copy(n)
	if t.i >= len(t.src) || t.src[t.i] != '+' {
		return nil
	}
	open := "(?:"
	if simple {
		open = "(?>"
		t.i++
	}
	body := string(t.out[t.atom:])
	t.out = append(append(append(t.out[:t.atom], open...), body...), ')')
	return nil
}

// interval is the length of {n}, {n,} , {,m} or {n,m} at the start of s, 0 for a brace that stands for itself.
func interval(s string) int {
	end := strings.IndexByte(s, '}')
	if end < 2 || strings.Trim(s[1:end], "0123456789,") != "" || s[1:end] == "," {
		return 0
	}
	return end + 1
}

func (t *onigReader) escape() error {
	if t.i+1 >= len(t.src) {
		return errors.New("ends in a backslash")
	}
	t.atom = len(t.out)
	switch t.src[t.i+1] {
	case 'w':
		t.out = append(t.out, "["+onigWord+"]"...)
	case 'W':
		t.out = append(t.out, "[^"+onigWord+"]"...)
	case 'h':
		t.out = append(t.out, "[0-9A-Fa-f]"...)
	case 'H':
		t.out = append(t.out, "[^0-9A-Fa-f]"...)
	case 'p', 'P':
		return t.property()
	case 'R', 'X', 'K', 'k', 'g', 'y', 'Y', 'O', 'N':
		return errors.New("uses \\" + t.src[t.i+1:t.i+2])
	default:
		t.copy(1)
		t.copy(runeWidth(t.src, t.i))
		return nil
	}
	t.i += 2
	return nil
}

// newer are the code points of a property that Oniguruma's Unicode has and Go's 15.0 has not; unicode.bin's script found them.
var newer = map[string]string{
	"Lu": `\u1C89\uA7CB-\uA7CC\uA7DA\uA7DC` + "\U00010D50-\U00010D65",
	"Ll": `\u1C8A\uA7CD\uA7DB` + "\U00010D70-\U00010D85",
	"Lm": "\U00010D4E\U00010D6F\U00016D40-\U00016D42\U00016D6B-\U00016D6C",
	"Lo": "\U000105C0-\U000105F3\U00010D4A-\U00010D4D\U00010D4F\U00010EC2-\U00010EC4\U00011380-\U00011389\U0001138B\U0001138E" +
		"\U00011390-\U000113B5\U000113B7\U000113D1\U000113D3\U00011BC0-\U00011BE0\U00013460-\U000143FA\U00016100-\U0001611D" +
		"\U00016D43-\U00016D6A\U00018CFF\U0001E5D0-\U0001E5ED\U0001E5F0\U0002EBF0-\U0002EE5D",
	"P": `\u1B4E-\u1B4F\u1B7F` + "\U00010D6E\U000113D4-\U000113D5\U000113D7-\U000113D8\U00011BE1\U00016D6D-\U00016D6F\U0001E5FF",
	"S": `\u2427-\u2429\u2FFC-\u2FFF\u31E4-\u31E5\u31EF` + "\U00010D8E-\U00010D8F\U0001CC00-\U0001CCEF\U0001CD00-\U0001CEB3" +
		"\U0001F8B2-\U0001F8BB\U0001F8C0-\U0001F8C1\U0001FA89\U0001FA8F\U0001FABE\U0001FAC6\U0001FADC\U0001FADF\U0001FAE9\U0001FBCB-\U0001FBEF",
	"N": "\U00010D40-\U00010D49\U000116D0-\U000116E3\U00011BF0-\U00011BF9\U00016130-\U00016139\U00016D70-\U00016D79\U0001CCF0-\U0001CCF9" +
		"\U0001E5F1-\U0001E5FA",
	"M": `\u0897` + "\U00010D69-\U00010D6D\U00010EFC\U000113B8-\U000113C0\U000113C2\U000113C5\U000113C7-\U000113CA\U000113CC-\U000113D0" +
		"\U000113D2\U000113E1-\U000113E2\U00011F5A\U0001611E-\U0001612F\U0001E5EE-\U0001E5EF",
	"Han": "\U0002EBF0-\U0002EE5D",
}

// name reads what stands in the braces of \p{...} and steps over it.
func (t *onigReader) name() (name string, negated bool, err error) {
	rest := t.src[t.i:]
	n := strings.IndexByte(rest, '}')
	if n < 4 || rest[2] != '{' {
		return "", false, errors.New("a property has no name in braces")
	}
	name, caret := strings.CutPrefix(rest[3:n], "^")
	t.i += n + 1
	return name, caret != (rest[1] == 'P'), nil
}

// members are the contents of a class for a property.
func members(name string) string {
	all := `\p{` + name + `}` + newer[name]
	if name == "L" {
		all += newer["Lu"] + newer["Ll"] + newer["Lm"] + newer["Lo"]
	}
	return all
}

// property copies a property outside a class.
func (t *onigReader) property() error {
	name, negated, err := t.name()
	if err != nil {
		return err
	}
	open := "["
	if negated {
		open = "[^"
	}
	t.out = append(t.out, open+members(name)+"]"...)
	return nil
}

// member copies a property inside a class.
func (t *onigReader) member() error {
	name, negated, err := t.name()
	if err != nil {
		return err
	}
	if negated {
		return errors.New("has a negated class within a class")
	}
	t.out = append(t.out, members(name)...)
	return nil
}

// class copies a bracketed class. Intersections and classes within classes are Oniguruma's own.
func (t *onigReader) class() error {
	t.copy(1)
	if t.i < len(t.src) && t.src[t.i] == '^' {
		t.copy(1)
	}
	for first := true; t.i < len(t.src); first = false {
		switch c := t.src[t.i]; {
		case c == ']' && !first:
			t.copy(1)
			return nil
		case c == '[':
			return errors.New("has a class within a class")
		case c == '&' && strings.HasPrefix(t.src[t.i:], "&&"):
			return errors.New("has an intersection of classes")
		case c == '-' && strings.HasPrefix(t.src[t.i:], "-["):
			return errors.New("has a class within a class")
		case c == '\\' && t.i+1 < len(t.src):
			switch t.src[t.i+1] {
			case 'w':
				t.out = append(t.out, onigWord...)
				t.i += 2
			case 'h':
				t.out = append(t.out, "0-9A-Fa-f"...)
				t.i += 2
			case 'p':
				if err := t.member(); err != nil {
					return err
				}
			case 'W', 'H', 'P':
				return errors.New("has a negated class within a class")
			default:
				t.copy(2)
			}
		default:
			t.copy(1)
		}
	}
	return errors.New("has a class that does not end")
}

// group copies what opens a group. Ruby's option m is .NET's s.
func (t *onigReader) group() error {
	t.copy(1)
	if !strings.HasPrefix(t.src[t.i:], "?") {
		return nil
	}
	end := t.i + 1
	for end < len(t.src) && strings.IndexByte("imx-", t.src[end]) >= 0 {
		end++
	}
	if end > t.i+1 && end < len(t.src) && (t.src[end] == ':' || t.src[end] == ')') {
		t.out = append(t.out, strings.ReplaceAll(t.src[t.i:end], "m", "s")...)
		t.i = end
		return nil
	}
	for _, kind := range []string{"?:", "?=", "?!", "?<=", "?<!", "?>"} {
		if strings.HasPrefix(t.src[t.i:], kind) {
			t.copy(len(kind))
			return nil
		}
	}
	return errors.New("has a group of a kind that is not implemented")
}
