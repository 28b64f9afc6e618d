package loader

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

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
	if asked == nil {
		return t.strict(p)
	}
	if p.Inside {
		return nil, contract.Errorf(contract.UnsupportedOption, "constraint", "the prompt ends within a thought, which a grammar would hold too").
			WithNext("switch reasoning off, or leave the grammar out")
	}
	return asked, nil
}

// strict is the grammar of an answer in which calls of strict functions follow their schemas; nil where none is strict. All else of the
// answer is free: thoughts, text, as many calls as the model likes.
func (t *text) strict(p generate.Prompt) (*generate.Constraint, error) {
	schema, err := generate.StrictSchema(p.Tools)
	if err != nil || schema == "" {
		return nil, err
	}
	at := slices.IndexFunc(t.syntaxes, writesJSON)
	if at < 0 {
		return nil, contract.Errorf(contract.UnsupportedOption, "strict", "this model does not write its calls as JSON, and a schema cannot hold them").
			WithNext("leave strict out")
	}
	s := t.syntaxes[at]
	call := "\ncall: %json {" + bareOptions + "," + schema[1:] + "\n"
	if s == toolcall.BareJSON { // an answer is a call or a text, which does not begin as one
		return &generate.Constraint{Lark: "start: call | FREE\n" + t.free(nil) + call}, nil
	}
	open, special := t.mark(s.Open), t.special(s.Open)
	end := ""
	if s.Close != "" {
		end = ` "\n" ` + t.mark(s.Close)
	}
	if special {
		return &generate.Constraint{Lark: "start: free* (one free*)*\none: " + open + ` "\n" call` + end + "\nfree: FREE" + t.thoughts() + "\n" + t.free(s) + call}, nil
	}
	// A marker that is text ends the text before it as soon as it is complete.
	head := "start: (head call" + end + ")* FREE?\nhead[lazy]: /(?s:.*)" + pattern(s.Open) + "\\n/\n"
	return &generate.Constraint{Lark: head + t.free(nil) + call}, nil
}

func writesJSON(s *toolcall.Syntax) bool {
	return s == toolcall.BareJSON || s == toolcall.Tagged || s == toolcall.PythonTag
}

// thoughts are the special tokens of thoughts, which text has no place for.
func (t *text) thoughts() string {
	out := ""
	if t.reasoning == nil {
		return out
	}
	for _, mark := range []string{t.reasoning.Open, t.reasoning.Close} {
		if t.special(mark) {
			out += " | " + t.mark(mark)
		}
	}
	return out
}

// free is the terminal of a text that is no call in any syntax of the model but the one whose marker is a token of its own.
func (t *text) free(marked *toolcall.Syntax) string {
	out := "FREE: /(?s:.+)/"
	for _, s := range t.syntaxes {
		switch {
		case s == marked:
		case s.Open != "":
			out += " & ~/(?s:.*)" + pattern(s.Open) + "(?s:.*)/"
		case s.Starts != "":
			out += ` & ~/\s*` + pattern(s.Starts) + "(?s:.*)/"
		}
	}
	return out
}

// pattern is a text as an expression between slashes.
func pattern(text string) string { return strings.ReplaceAll(regexp.QuoteMeta(text), "/", `\/`) }

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

// special reports whether a marker is a special token.
func (t *text) special(text string) bool {
	if t.tokenizer == nil {
		return false
	}
	id, ok := t.tokenizer.ID(text)
	return ok && t.tokenizer.IsSpecial(id)
}

// mark is a marker in a Lark grammar: the special token where the vocabulary has one, else the text.
func (t *text) mark(text string) string {
	if t.special(text) {
		id, _ := t.tokenizer.ID(text)
		return fmt.Sprintf("<[%d]>", id)
	}
	quoted, _ := json.Marshal(text) // a text always is
	return string(quoted)
}
