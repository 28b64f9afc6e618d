package toolcall

import (
	"encoding/json"
	"strings"
)

// repair is one pass over a text that is not the JSON it should be.
type repair struct {
	name string
	mend func(string) string
}

// repairs in the order in which they are tried; each works on what the ones before left.
var repairs = []repair{
	{"fence", stripFence},
	{"prose", stripProse},
	{"trailing commas", stripCommas},
	{"python literals", pythonWords},
	{"single quotes", doubleQuotes},
	{"unbalanced brackets", balance},
}

// repairJSON reads calls after as few repairs as help, and says which.
func repairJSON(body string) ([]Call, []string, error) {
	calls, first := readJSON(body, nil)
	if first == nil {
		return calls, []string{"JSON"}, nil // in the place of the model's own syntax
	}
	var done []string
	for _, r := range repairs {
		mended := r.mend(body)
		if mended == body {
			continue
		}
		body, done = mended, append(done, r.name)
		if calls, err := readJSON(body, nil); err == nil {
			return calls, done, nil
		}
	}
	if c, ok := nameInside(body); ok {
		return []Call{c}, append(done, "name inside arguments"), nil
	}
	return nil, nil, first
}

func stripFence(s string) string {
	t := strings.TrimSpace(s)
	if !strings.HasPrefix(t, "```") {
		return s
	}
	t = strings.TrimPrefix(t, "```")
	if k := strings.IndexByte(t, '\n'); k >= 0 && !strings.ContainsAny(t[:k], "{[") {
		t = t[k+1:]
	} else {
		t = strings.TrimPrefix(t, "json")
	}
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(t), "```"))
}

// stripProse leaves out what stands before the first bracket and behind the last.
func stripProse(s string) string {
	k := strings.IndexAny(s, "{[")
	if k < 0 {
		return s
	}
	s = s[k:]
	if end := strings.LastIndexAny(s, "}]"); end >= 0 {
		return s[:end+1]
	}
	return s
}

// outside applies fn to the parts of s that are outside of JSON texts.
func outside(s string, fn func(string) string) string {
	var b strings.Builder
	for s != "" {
		k := strings.IndexByte(s, '"')
		if k < 0 {
			b.WriteString(fn(s))
			break
		}
		end := k + 1
		for end < len(s) && s[end] != '"' {
			if s[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end+1, len(s))
		b.WriteString(fn(s[:k]))
		b.WriteString(s[k:end])
		s = s[end:]
	}
	return b.String()
}

func stripCommas(s string) string {
	return outside(s, func(part string) string {
		for {
			k := -1
			for i := 0; i < len(part); i++ {
				if part[i] != ',' {
					continue
				}
				if rest := strings.TrimLeft(part[i+1:], " \t\r\n"); rest != "" && (rest[0] == '}' || rest[0] == ']') {
					k = i
					break
				}
			}
			if k < 0 {
				return part
			}
			part = part[:k] + part[k+1:]
		}
	})
}

// pythonWords writes True, False and None as JSON does.
func pythonWords(s string) string {
	return outside(s, func(part string) string {
		var b strings.Builder
		for part != "" {
			n := 0
			for n < len(part) && wordByte(part[n]) {
				n++
			}
			if n == 0 {
				b.WriteByte(part[0])
				part = part[1:]
				continue
			}
			switch part[:n] {
			case "True":
				b.WriteString("true")
			case "False":
				b.WriteString("false")
			case "None":
				b.WriteString("null")
			default:
				b.WriteString(part[:n])
			}
			part = part[n:]
		}
		return b.String()
	})
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// doubleQuotes reads the text as Python writes it.
func doubleQuotes(s string) string {
	if !strings.Contains(s, "'") {
		return s
	}
	if v, ok := pythonLiteral(strings.TrimSpace(s)); ok {
		return v
	}
	return s
}

// balance closes what is open at the end and leaves out what closes nothing there.
func balance(s string) string {
	var open []byte
	text := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{':
			open = append(open, '}')
		case c == '[':
			open = append(open, ']')
		case c == '}' || c == ']':
			if len(open) == 0 || open[len(open)-1] != c {
				return s[:i] + closing(open)
			}
			open = open[:len(open)-1]
			if len(open) == 0 && strings.Trim(s[i+1:], "}] \t\r\n") == "" {
				return s[:i+1]
			}
		}
	}
	if text {
		return s // the text itself is cut: what it was to be cannot be known
	}
	return s + closing(open)
}

func closing(open []byte) string {
	var b strings.Builder
	for i := len(open) - 1; i >= 0; i-- {
		b.WriteByte(open[i])
	}
	return b.String()
}

// nameInside takes {"arguments": {"name": "f", ...}} for a call of f.
func nameInside(body string) (Call, bool) {
	var e envelope
	if json.Unmarshal([]byte(body), &e) != nil || e.Name != nil {
		return Call{}, false
	}
	args := e.Arguments
	if args == nil {
		args = e.Parameters
	}
	d := json.NewDecoder(strings.NewReader(string(args)))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return Call{}, false
	}
	var name string
	var rest members
	for d.More() {
		key, err := d.Token()
		var v json.RawMessage
		if err != nil || d.Decode(&v) != nil {
			return Call{}, false
		}
		if key == "name" && kindOf(v) == "string" {
			_ = json.Unmarshal(v, &name) // a string is one
			continue
		}
		rest.set(key.(string), compact(string(v)))
	}
	if inner, ok := rest.values["arguments"]; ok && len(rest.keys) == 1 && kindOf(json.RawMessage(inner)) == "object" {
		return Call{Name: name, Arguments: inner}, name != ""
	}
	return Call{Name: name, Arguments: rest.String()}, name != ""
}
