package generate

import (
	"encoding/json"
	"strings"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// Constraint is the grammar that an answer is held to: exactly one of its kinds. The plugin computes what it allows.
type Constraint struct {
	JSONSchema string   `json:",omitempty"`
	JSONObject bool     `json:",omitempty"`
	Regex      string   `json:",omitempty"`
	Lark       string   `json:",omitempty"`
	Choice     []string `json:",omitempty"`
	// Compact leaves out the white space between the tokens of JSON.
	Compact bool `json:",omitempty"`
}

// maxGrammar is the most bytes of a grammar that are sent to a plugin, whose messages are bounded; plugins bound them closer.
const maxGrammar = 512 << 10

// check refuses what is no grammar; the plugin compiles it and says what is wrong inside.
func (c *Constraint) check() error {
	if c == nil {
		return nil
	}
	kinds, size := 0, len(c.JSONSchema)+len(c.Regex)+len(c.Lark)
	for _, given := range []bool{c.JSONSchema != "", c.JSONObject, c.Regex != "", c.Lark != "", c.Choice != nil} {
		if given {
			kinds++
		}
	}
	for _, option := range c.Choice {
		size += len(option)
	}
	switch {
	case kinds != 1:
		return contract.Errorf(contract.InvalidArgument, "constraint", "want one grammar: a JSON schema, a JSON object, an expression, a Lark grammar or a choice")
	case size > maxGrammar:
		return contract.Errorf(contract.InvalidArgument, "constraint", "the grammar has %d bytes, at most %d", size, maxGrammar)
	case c.JSONSchema != "" && !json.Valid([]byte(c.JSONSchema)):
		return contract.Errorf(contract.InvalidArgument, "constraint.json_schema", "is not JSON")
	case c.Choice != nil && len(c.Choice) == 0:
		return contract.Errorf(contract.InvalidArgument, "constraint.choice", "want at least one text")
	}
	return nil
}

func (c *Constraint) proto() *cladev1.Constraint {
	out := &cladev1.Constraint{}
	switch {
	case c.JSONSchema != "":
		out.Grammar = &cladev1.Constraint_JsonSchema{JsonSchema: c.JSONSchema}
	case c.JSONObject:
		out.Grammar = &cladev1.Constraint_JsonObject{JsonObject: true}
	case c.Regex != "":
		out.Grammar = &cladev1.Constraint_Regex{Regex: c.Regex}
	case c.Lark != "":
		out.Grammar = &cladev1.Constraint_Lark{Lark: c.Lark}
	default:
		out.Grammar = &cladev1.Constraint_Choice{Choice: &cladev1.Choice{Options: c.Choice}}
	}
	if c.Compact {
		out.CompactWhitespace = &c.Compact
	}
	return out
}

// constraintOptions are the kinds of grammar, each an option that a plugin declares by itself.
func constraintOptions() []option {
	one := func(path string, has func(c *Constraint) bool) option {
		return option{
			"constraint." + path, "constraint." + path,
			func(s Settings) bool { return s.Constraint != nil && has(s.Constraint) },
			func(s Settings, g *cladev1.GenerateStart) { g.Constraint = s.Constraint.proto() },
			func(s *Settings) { s.Constraint = nil },
		}
	}
	return []option{
		one("json_schema", func(c *Constraint) bool { return c.JSONSchema != "" }),
		one("json_object", func(c *Constraint) bool { return c.JSONObject }),
		one("regex", func(c *Constraint) bool { return c.Regex != "" }),
		one("lark", func(c *Constraint) bool { return c.Lark != "" }),
		one("choice", func(c *Constraint) bool { return c.Choice != nil }),
		one("compact_whitespace", func(c *Constraint) bool { return c.Compact }),
	}
}

// ToolsSchema is the JSON schema of a call of one of some functions (AnyTool), or of the named one: an object with the function's name and
// its arguments. tools are OpenAI's definitions, as a client wrote them.
func ToolsSchema(tools json.RawMessage, named string) (string, error) {
	list, err := functionsOf(tools)
	if err != nil {
		return "", err
	}
	return schemaOf(list, named)
}

// StrictSchema is the schema of a call where a function is strict: its arguments follow its schema, those of others are any object. It
// is empty where none is strict.
func StrictSchema(tools json.RawMessage) (string, error) {
	list, err := functionsOf(tools)
	if err != nil {
		return "", err
	}
	strict := false
	for i := range list {
		if f := &list[i].Function; f.Strict {
			strict = true
		} else {
			f.Parameters = nil
		}
	}
	if !strict {
		return "", nil
	}
	return schemaOf(list, AnyTool)
}

// function is one of OpenAI's definitions.
type function struct {
	Function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
		Strict     bool            `json:"strict"`
	} `json:"function"`
}

func functionsOf(tools json.RawMessage) (list []function, err error) {
	if len(tools) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(tools, &list); err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, "tools", "want a list of functions: %w", err)
	}
	return list, nil
}

func schemaOf(list []function, named string) (string, error) {
	var calls []string
	for _, t := range list {
		if named != AnyTool && t.Function.Name != named {
			continue
		}
		name, err := json.Marshal(t.Function.Name)
		if err != nil {
			return "", contract.Errorf(contract.InvalidArgument, "tools", "%w", err)
		}
		parameters := string(t.Function.Parameters)
		if parameters == "" || parameters == "null" {
			parameters = `{"type":"object"}`
		}
		calls = append(calls, `{"type":"object","properties":{"name":{"const":`+string(name)+`},"arguments":`+parameters+
			`},"required":["name","arguments"],"additionalProperties":false}`)
	}
	switch len(calls) {
	case 0:
		return "", contract.Errorf(contract.InvalidArgument, "tool_choice", "%q is none of the tools", named)
	case 1:
		return calls[0], nil
	}
	return `{"anyOf":[` + strings.Join(calls, ",") + `]}`, nil
}
