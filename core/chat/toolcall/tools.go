package toolcall

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// Call is one call of a tool.
type Call struct {
	Name string `json:"name"`
	// Arguments is a JSON object.
	Arguments string `json:"arguments"`
	// Repairs name what had to be mended before the call could be read, in order.
	Repairs []string `json:"repairs,omitempty"`
}

// Tools are the tools that a client offered, by name.
type Tools struct {
	names  []string
	params map[string]map[string]kinds
	order  map[string][]string // parameters as declared, for positional arguments
}

// kinds are the JSON types that a schema allows; empty: any.
type kinds []string

func (k kinds) onlyText() bool { return len(k) == 1 && k[0] == "string" }

// NewTools reads definitions in OpenAI's form: [{"type": "function", "function": {"name": ..., "parameters": schema}}].
func NewTools(data []byte) (*Tools, error) {
	var list []struct {
		Function struct {
			Name       string          `json:"name"`
			Parameters json.RawMessage `json:"parameters"`
		} `json:"function"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, "tools", "%w", err)
	}
	t := &Tools{params: map[string]map[string]kinds{}, order: map[string][]string{}}
	for _, item := range list {
		name := item.Function.Name
		if slices.Contains(t.names, name) {
			return nil, contract.Errorf(contract.InvalidArgument, "tools", "%q is offered twice", name)
		}
		t.names = append(t.names, name)
		t.params[name], t.order[name] = parametersOf(item.Function.Parameters)
	}
	return t, nil
}

// Names of the tools in the client's order.
func (t *Tools) Names() []string { return slices.Clone(t.names) }

// schemaPart is what is read of a JSON schema. A schema of another shape says nothing about a value.
type schemaPart struct {
	Type       json.RawMessage            `json:"type"`
	Enum       []json.RawMessage          `json:"enum"`
	AnyOf      []json.RawMessage          `json:"anyOf"`
	OneOf      []json.RawMessage          `json:"oneOf"`
	Properties map[string]json.RawMessage `json:"properties"`
}

func parametersOf(raw json.RawMessage) (map[string]kinds, []string) {
	var schema schemaPart
	out := map[string]kinds{}
	if json.Unmarshal(raw, &schema) != nil {
		return out, nil
	}
	for name, p := range schema.Properties {
		out[name] = kindsOf(p, 0)
	}
	return out, propertyOrder(raw)
}

// maxSchema bounds how deep alternatives of a schema are followed.
const maxSchema = 8

func kindsOf(raw json.RawMessage, depth int) kinds {
	var s schemaPart
	if depth > maxSchema || json.Unmarshal(raw, &s) != nil {
		return nil
	}
	var one string
	var many []string
	switch {
	case json.Unmarshal(s.Type, &one) == nil:
		return kinds{one}
	case json.Unmarshal(s.Type, &many) == nil:
		return many
	}
	var out kinds
	for _, alternatives := range [][]json.RawMessage{s.AnyOf, s.OneOf} {
		for _, a := range alternatives {
			k := kindsOf(a, depth+1)
			if len(k) == 0 {
				return nil
			}
			out = append(out, k...)
		}
	}
	for _, v := range s.Enum {
		if k := kindOf(v); !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// propertyOrder are the names of a schema's properties as they stand.
func propertyOrder(raw json.RawMessage) []string {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	top, ok := objectKeys(d, "properties")
	if !ok || !top {
		return nil
	}
	var out []string
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		var skipped json.RawMessage
		if err != nil || d.Decode(&skipped) != nil {
			return out
		}
		out = append(out, key.(string))
	}
	return out
}

// objectKeys moves d to the value of a key of the object that it is at.
func objectKeys(d *json.Decoder, want string) (found, ok bool) {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return false, false
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return false, false
		}
		if key == want {
			return true, true
		}
		var skipped json.RawMessage
		if d.Decode(&skipped) != nil {
			return false, false
		}
	}
	return false, true
}

// kindOf is the JSON type of a value.
func kindOf(raw json.RawMessage) string {
	s := strings.TrimSpace(string(raw))
	switch {
	case s == "":
		return ""
	case s[0] == '"':
		return "string"
	case s[0] == '{':
		return "object"
	case s[0] == '[':
		return "array"
	case s == "true" || s == "false":
		return "boolean"
	case s == "null":
		return "null"
	case strings.ContainsAny(s, ".eE"):
		return "number"
	}
	return "integer"
}

func (k kinds) allow(kind string) bool {
	return len(k) == 0 || slices.Contains(k, kind) || kind == "integer" && slices.Contains(k, "number")
}

// value is the JSON of a value that was written without JSON's quotes: a text where the schema wants one, else JSON or a Python
// literal if it is one, else a text.
func (t *Tools) value(tool, param, text string) string {
	k := t.kinds(tool, param)
	trimmed := strings.TrimSpace(text)
	if !k.onlyText() && trimmed != "" {
		if json.Valid([]byte(trimmed)) && (k.allow(kindOf([]byte(trimmed))) || !slices.Contains(k, "string")) {
			return compact(trimmed)
		}
		if v, ok := pythonLiteral(trimmed); ok && (k.allow(kindOf([]byte(v))) && kindOf([]byte(v)) != "string") {
			return v
		}
	}
	return quote(text)
}

func (t *Tools) kinds(tool, param string) kinds {
	if t == nil {
		return nil
	}
	return t.params[tool][param]
}
