package openai

import (
	"encoding/json"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// constrain sets the grammar of a request, which has at most one.
func constrain(q *chatRequest, name string, c generate.Constraint) error {
	if q.settings.Constraint != nil {
		return badField(contract.InvalidArgument, name, "the answer is held to another grammar already; give one")
	}
	q.settings.Constraint = &c
	return nil
}

// readResponseFormat reads OpenAI's response_format. A schema that is not strict is followed all the same.
func readResponseFormat(q *chatRequest, name string, raw json.RawMessage) error {
	tree, err := object(name, raw)
	if err != nil {
		return err
	}
	var kind string
	if json.Unmarshal(tree["type"], &kind) != nil {
		return badField(contract.InvalidArgument, name+".type", "want text, json_object or json_schema")
	}
	for _, key := range sortedKeys(tree) {
		if key != "type" && (key != "json_schema" || kind != "json_schema") {
			return badField(contract.UnsupportedOption, name+"."+key, "unknown or unsupported field")
		}
	}
	switch kind {
	case "text":
		return nil
	case "json_object":
		return constrain(q, name, generate.Constraint{JSONObject: true})
	case "json_schema":
		return readJSONSchema(q, name+".json_schema", tree["json_schema"])
	}
	return badField(contract.UnsupportedOption, name+".type", "%q is not one of text, json_object, json_schema", kind)
}

func readJSONSchema(q *chatRequest, name string, raw json.RawMessage) error {
	if raw == nil {
		return badField(contract.InvalidArgument, name, "is missing")
	}
	tree, err := object(name, raw)
	if err != nil {
		return err
	}
	for _, key := range sortedKeys(tree) {
		var text string
		var on bool
		switch path := name + "." + key; key {
		case "name", "description":
			if !isNull(tree[key]) && json.Unmarshal(tree[key], &text) != nil {
				return badField(contract.InvalidArgument, path, "want a text")
			}
		case "strict":
			if !isNull(tree[key]) && json.Unmarshal(tree[key], &on) != nil {
				return badField(contract.InvalidArgument, path, "want true or false")
			}
		case "schema":
		default:
			return badField(contract.UnsupportedOption, path, "unknown or unsupported field")
		}
	}
	if tree["schema"] == nil {
		return badField(contract.InvalidArgument, name+".schema", "is missing")
	}
	return constrain(q, name, generate.Constraint{JSONSchema: string(tree["schema"])})
}

// readStructuredOutputs reads vLLM's structured_outputs: one of json, json_object, regex, choice and grammar.
func readStructuredOutputs(q *chatRequest, name string, raw json.RawMessage) error {
	tree, err := object(name, raw)
	if err != nil {
		return err
	}
	compact := false
	for _, key := range sortedKeys(tree) {
		path := name + "." + key
		read, known := guided["guided_"+key]
		switch {
		case isNull(tree[key]):
		case key == "disable_any_whitespace":
			if json.Unmarshal(tree[key], &compact) != nil {
				return badField(contract.InvalidArgument, path, "want true or false")
			}
		case !known:
			return badField(contract.UnsupportedOption, path, "unknown or unsupported field")
		default:
			if err := read(q, path, tree[key]); err != nil {
				return err
			}
		}
	}
	if q.settings.Constraint == nil {
		return badField(contract.InvalidArgument, name, "want one of json, json_object, regex, choice, grammar")
	}
	q.settings.Constraint.Compact = compact
	return nil
}

// guided are vLLM's older fields, one for each kind of grammar; structured_outputs has the same ones without the prefix.
var guided = map[string]field{
	"guided_json": func(q *chatRequest, name string, raw json.RawMessage) error {
		var text string
		if json.Unmarshal(raw, &text) == nil { // a schema that is written as a text
			if !json.Valid([]byte(text)) {
				return badField(contract.InvalidArgument, name, "want a JSON schema")
			}
			raw = json.RawMessage(text)
		}
		return constrain(q, name, generate.Constraint{JSONSchema: string(raw)})
	},
	"guided_json_object": func(q *chatRequest, name string, raw json.RawMessage) error {
		var on bool
		if json.Unmarshal(raw, &on) != nil {
			return badField(contract.InvalidArgument, name, "want true or false")
		}
		if !on {
			return nil
		}
		return constrain(q, name, generate.Constraint{JSONObject: true})
	},
	"guided_regex": func(q *chatRequest, name string, raw json.RawMessage) error {
		var text string
		if json.Unmarshal(raw, &text) != nil || text == "" {
			return badField(contract.InvalidArgument, name, "want a regular expression")
		}
		return constrain(q, name, generate.Constraint{Regex: text})
	},
	"guided_choice": func(q *chatRequest, name string, raw json.RawMessage) error {
		var texts []string
		if json.Unmarshal(raw, &texts) != nil || len(texts) == 0 {
			return badField(contract.InvalidArgument, name, "want a list of texts")
		}
		return constrain(q, name, generate.Constraint{Choice: texts})
	},
	"guided_grammar": func(q *chatRequest, name string, raw json.RawMessage) error {
		var text string
		if json.Unmarshal(raw, &text) != nil || text == "" {
			return badField(contract.InvalidArgument, name, "want a Lark grammar")
		}
		return constrain(q, name, generate.Constraint{Lark: text})
	},
}
