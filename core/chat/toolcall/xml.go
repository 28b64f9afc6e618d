package toolcall

import (
	"errors"
	"fmt"
	"html"
	"strings"
)

// readTagged reads what stands in <tool_call>: Qwen's form if it begins so, else JSON, else GLM's.
func readTagged(body string, t *Tools) ([]Call, error) {
	switch s := strings.TrimSpace(body); {
	case s == "":
		return nil, errEmpty
	case strings.HasPrefix(s, "<function="):
		return readQwen(s, t)
	case strings.HasPrefix(s, "<function name="):
		return readAttributes(s, t)
	case s[0] == '{' || s[0] == '[' || s[0] == '`':
		return readJSON(s, t)
	case strings.Contains(s, "<arg_key>") || !strings.ContainsAny(s, "{}[]() \t\r\n"):
		return readGLM(s, t)
	}
	return readJSON(body, t)
}

// between cuts s at the first open and the first close behind it.
func between(s, open, end string) (before, inside, after string, ok bool) {
	before, s, ok = strings.Cut(s, open)
	if !ok {
		return before, "", "", false
	}
	inside, after, ok = strings.Cut(s, end)
	return before, inside, after, ok
}

// unframe takes one newline from each end of a value.
func unframe(s string) string { return strings.TrimSuffix(strings.TrimPrefix(s, "\n"), "\n") }

// readQwen reads <function=NAME><parameter=KEY>VALUE</parameter>...</function>, once or more. Values keep their entities.
func readQwen(s string, t *Tools) ([]Call, error) {
	var out []Call
	if strings.TrimSpace(s) == "" {
		return nil, errEmpty
	}
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		before, name, rest, ok := between(s, "<function=", ">")
		if !ok || strings.TrimSpace(before) != "" {
			return nil, errors.New("is not <function=NAME>")
		}
		c := Call{Name: strings.TrimSpace(name)}
		var args members
		for {
			rest = strings.TrimLeft(rest, " \t\r\n")
			if after, ok := strings.CutPrefix(rest, "</function>"); ok {
				s = after
				break
			}
			if !strings.HasPrefix(rest, "<parameter=") {
				return nil, errors.New("<function=...> is not closed")
			}
			_, key, value, ok := between(rest, "<parameter=", ">")
			if !ok {
				return nil, errors.New("<parameter=...> is not closed")
			}
			value, rest, ok = cutParameter(value)
			if !ok {
				return nil, fmt.Errorf("the parameter %s is not closed", key)
			}
			key = strings.TrimSpace(key)
			args.set(key, t.value(c.Name, key, unframe(value)))
		}
		c.Arguments = args.String()
		out = append(out, c)
	}
	return out, nil
}

// cutParameter ends a value at the first </parameter> that another parameter or the function's end follows, so that a value may
// hold the marker itself.
func cutParameter(s string) (value, rest string, ok bool) {
	for at := 0; ; {
		k := strings.Index(s[at:], "</parameter>")
		if k < 0 {
			return "", "", false
		}
		end := at + k
		rest = s[end+len("</parameter>"):]
		next := strings.TrimLeft(rest, " \t\r\n")
		if strings.HasPrefix(next, "<parameter=") || strings.HasPrefix(next, "</function>") {
			return s[:end], rest, true
		}
		at = end + 1
	}
}

// readGLM reads NAME<arg_key>K</arg_key><arg_value>V</arg_value>... Values are decoded from XML.
func readGLM(s string, t *Tools) ([]Call, error) {
	name, rest, found := strings.Cut(s, "<arg_key>")
	c := Call{Name: strings.TrimSpace(name)}
	if found {
		rest = "<arg_key>" + rest
	}
	if c.Name == "" || strings.ContainsAny(c.Name, "<>\n") {
		return nil, errors.New("has no name of a tool")
	}
	var args members
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		before, key, after, ok := between(rest, "<arg_key>", "</arg_key>")
		if !ok || strings.TrimSpace(before) != "" {
			return nil, errors.New("is not a chain of <arg_key> and <arg_value>")
		}
		before, value, after, ok := between(after, "<arg_value>", "</arg_value>")
		if !ok || strings.TrimSpace(before) != "" {
			return nil, fmt.Errorf("the argument %s has no value", key)
		}
		key = strings.TrimSpace(key)
		args.set(key, t.value(c.Name, key, html.UnescapeString(value)))
		rest = after
	}
	c.Arguments = args.String()
	return []Call{c}, nil
}

const cdata, cdataEnd = "<![CDATA[", "]]>"

// readAttributes reads <function name="N"><param name="K">V</param>...</function>, once or more; V may be CDATA.
func readAttributes(s string, t *Tools) ([]Call, error) {
	var out []Call
	if strings.TrimSpace(s) == "" {
		return nil, errEmpty
	}
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		name, rest, err := attributeTag(s, "function")
		if err != nil {
			return nil, err
		}
		c := Call{Name: name}
		var args members
		for {
			rest = strings.TrimLeft(rest, " \t\r\n")
			if after, ok := strings.CutPrefix(rest, "</function>"); ok {
				s = after
				break
			}
			var key, value string
			if key, rest, err = attributeTag(rest, "param"); err != nil {
				return nil, err
			}
			var raw bool
			if value, rest, raw, err = paramValue(rest); err != nil {
				return nil, fmt.Errorf("the parameter %s %w", key, err)
			}
			if !raw {
				value = html.UnescapeString(value)
			}
			args.set(key, t.value(c.Name, key, value))
		}
		c.Arguments = args.String()
		out = append(out, c)
	}
	return out, nil
}

// attributeTag reads <TAG name="..."> or with single quotes.
func attributeTag(s, tag string) (name, rest string, err error) {
	after, ok := strings.CutPrefix(s, "<"+tag+" name=")
	if !ok || after == "" {
		return "", "", fmt.Errorf("want <%s name=\"...\">", tag)
	}
	mark := after[:1]
	if mark != `"` && mark != "'" {
		return "", "", fmt.Errorf("the name of <%s> has no quotes", tag)
	}
	name, rest, ok = strings.Cut(after[1:], mark)
	rest, closed := strings.CutPrefix(strings.TrimLeft(rest, " \t"), ">")
	if !ok || !closed {
		return "", "", fmt.Errorf("<%s> is not closed", tag)
	}
	return strings.TrimSpace(html.UnescapeString(name)), rest, nil
}

func paramValue(s string) (value, rest string, raw bool, err error) {
	if after, ok := strings.CutPrefix(strings.TrimLeft(s, " \t\r\n"), cdata); ok {
		value, rest, ok = strings.Cut(after, cdataEnd)
		rest, closed := strings.CutPrefix(strings.TrimLeft(rest, " \t\r\n"), "</param>")
		if !ok || !closed {
			return "", "", true, errors.New("has CDATA that is not closed")
		}
		return value, rest, true, nil
	}
	value, rest, ok := strings.Cut(s, "</param>")
	if !ok {
		return "", "", false, errors.New("is not closed")
	}
	return unframe(value), rest, false, nil
}
