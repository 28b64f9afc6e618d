package loader

import (
	"encoding/json"
	"fmt"

	"github.com/clademl/clade/core/chat/toolcall"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// held is the grammar of a reply: the request's own, or that of the call it asks for. A grammar begins with the reply, so a prompt
// that ends within a thought has no place for one.
func (t *text) held(p generate.Prompt, asked *generate.Constraint) (*generate.Constraint, error) {
	if p.Call != "" {
		if asked != nil {
			return nil, contract.Errorf(contract.InvalidArgument, "tool_choice", "a call cannot be forced where the answer is held to another grammar")
		}
		schema, err := generate.ToolsSchema(p.Tools, p.Call)
		if err != nil {
			return nil, err
		}
		if asked, err = t.callGrammar(schema); err != nil {
			return nil, err
		}
	}
	if asked != nil && p.Inside {
		return nil, contract.Errorf(contract.UnsupportedOption, "constraint", "the prompt ends within a thought, which a grammar would hold too").
			WithNext("switch reasoning off, or leave the grammar out")
	}
	return asked, nil
}

// bareOptions keep white space out of a call: nobody reads it.
const bareOptions = `"x-guidance":{"whitespace_flexible":false,"json_allowed_escapes":"nrbtf\\\""}`

// callGrammar is the grammar of one call as the model writes and the reader reads it: JSON of the given schema between markers.
func (t *text) callGrammar(schema string) (*generate.Constraint, error) {
	for _, s := range t.syntaxes {
		switch s {
		case toolcall.BareJSON:
			return &generate.Constraint{JSONSchema: schema, Compact: true}, nil
		case toolcall.Tagged, toolcall.PythonTag:
			start := "start: " + t.mark(s.Open) + ` "\n" call`
			if s.Close != "" {
				start += ` "\n" ` + t.mark(s.Close)
			}
			return &generate.Constraint{Lark: start + "\ncall: %json {" + bareOptions + "," + schema[1:] + "\n"}, nil
		}
	}
	return nil, contract.Errorf(contract.UnsupportedOption, "tool_choice", "a call cannot be forced: this model does not write its calls as JSON").
		WithNext("use auto")
}

// mark is a marker in a Lark grammar: the special token where the vocabulary has one, else the text.
func (t *text) mark(text string) string {
	if t.tokenizer != nil {
		if id, ok := t.tokenizer.ID(text); ok && t.tokenizer.IsSpecial(id) {
			return fmt.Sprintf("<[%d]>", id)
		}
	}
	quoted, _ := json.Marshal(text) // a text always is
	return string(quoted)
}
