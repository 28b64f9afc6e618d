package toolcall

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// compact takes the white space out of valid JSON and leaves everything else.
func compact(s string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(s)) != nil {
		return s
	}
	return b.String()
}

// quote writes a text as JSON, with the characters as they are where JSON lets them be.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(strings.ToValidUTF8(s, "\uFFFD")) != nil {
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// members writes an object in the order of its keys; of a key that comes twice the last value counts.
type members struct {
	keys   []string
	values map[string]string
}

func (m *members) set(key, value string) {
	if m.values == nil {
		m.values = map[string]string{}
	}
	if _, ok := m.values[key]; !ok {
		m.keys = append(m.keys, key)
	}
	m.values[key] = value
}

func (m *members) String() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, k := range m.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quote(k) + ":" + m.values[k])
	}
	b.WriteByte('}')
	return b.String()
}

// envelope is a call as JSON models write it.
type envelope struct {
	Name       *string         `json:"name"`
	Arguments  json.RawMessage `json:"arguments"`
	Parameters json.RawMessage `json:"parameters"`
	Function   json.RawMessage `json:"function"`
}

// errNotACall says that something is JSON but no call.
var errNotACall = errors.New("has no name of a tool")

// readJSON reads one call, a list of calls, or several one behind the other.
func readJSON(body string, _ *Tools) ([]Call, error) {
	d := json.NewDecoder(strings.NewReader(body))
	var out []Call
	for {
		var raw json.RawMessage
		err := d.Decode(&raw)
		if err != nil {
			if rest := strings.TrimLeft(body[d.InputOffset():], " \t\r\n;,"); len(out) > 0 && rest == "" {
				return out, nil
			}
			return nil, fmt.Errorf("is not JSON: %w", err)
		}
		calls, err := readEnvelopes(raw)
		if err != nil {
			return nil, err
		}
		out = append(out, calls...)
		rest := strings.TrimLeft(body[d.InputOffset():], " \t\r\n;")
		if rest == "" {
			return out, nil
		}
		if body = rest; body[0] != '{' {
			return nil, errors.New("is not JSON: something follows the call")
		}
		d = json.NewDecoder(strings.NewReader(body))
	}
}

func readEnvelopes(raw json.RawMessage) ([]Call, error) {
	if kindOf(raw) == "array" {
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, errors.New("is an empty list")
		}
		var out []Call
		for _, item := range list {
			c, err := readEnvelope(item)
			if err != nil {
				return nil, err
			}
			out = append(out, c)
		}
		return out, nil
	}
	c, err := readEnvelope(raw)
	return []Call{c}, err
}

func readEnvelope(raw json.RawMessage) (Call, error) {
	if kindOf(raw) != "object" {
		return Call{}, errors.New("is not an object")
	}
	var e envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return Call{}, errNotACall
	}
	if kindOf(e.Function) == "object" {
		return readEnvelope(e.Function)
	}
	if e.Name == nil && json.Unmarshal(e.Function, &e.Name) != nil || e.Name == nil {
		return Call{}, errNotACall
	}
	args := e.Arguments
	if args == nil {
		args = e.Parameters
	}
	c := Call{Name: strings.TrimSpace(*e.Name)}
	var err error
	c.Arguments, err = objectOf(args)
	return c, err
}

// objectOf is a call's arguments: an object, one written into a text, or nothing.
func objectOf(raw json.RawMessage) (string, error) {
	switch kindOf(raw) {
	case "", "null":
		return "{}", nil
	case "object":
		return compact(string(raw)), nil
	case "string":
		var inner string
		if err := json.Unmarshal(raw, &inner); err == nil {
			inner = strings.TrimSpace(inner)
			if inner == "" {
				return "{}", nil
			}
			if kindOf(json.RawMessage(inner)) == "object" && json.Valid([]byte(inner)) {
				return compact(inner), nil
			}
		}
	}
	return "", errors.New("the arguments are not an object")
}

func valid(s string) bool { return json.Valid([]byte(s)) }
