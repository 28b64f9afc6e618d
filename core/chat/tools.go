package chat

import (
	"encoding/json"
	"fmt"

	"github.com/clademl/clade/sdk/contract"
)

// PrepareTools gives the schemas of tools the types that templates read and clients leave out: an object where there are
// properties, an array where there are items, the type of a constant or of the values of an enum, that of the alternatives. What
// cannot be known is a string. The order of keys stays, a type goes last.
func PrepareTools(data []byte) ([]any, error) {
	list, err := parseList("tools", data)
	if err != nil {
		return nil, err
	}
	for i, item := range list {
		here := fmt.Sprintf("tools[%d]", i)
		tool, ok := item.(*Object)
		if !ok {
			return nil, contract.Errorf(contract.InvalidArgument, here, "is not an object")
		}
		fn := tool
		if inner, ok := tool.values["function"].(*Object); ok {
			fn = inner
		}
		if name, ok := fn.values["name"].(string); !ok || name == "" {
			return nil, contract.Errorf(contract.InvalidArgument, here+".function.name", "is missing")
		}
		if schema, ok := fn.values["parameters"].(*Object); ok {
			inferTypes(schema, "object")
		}
	}
	return list, nil
}

// subschemas are the keys under which a schema holds one schema, a list of them, or named ones.
var (
	oneSchema   = []string{"items", "additionalProperties", "not"}
	manySchemas = []string{"anyOf", "oneOf", "allOf", "prefixItems"}
	namedOnes   = []string{"properties", "$defs", "definitions", "patternProperties"}
)

func inferTypes(schema *Object, otherwise string) {
	for _, key := range oneSchema {
		if s, ok := schema.values[key].(*Object); ok {
			inferTypes(s, "string")
		}
	}
	for _, key := range manySchemas {
		list, _ := schema.values[key].([]any)
		for _, item := range list {
			if s, ok := item.(*Object); ok {
				inferTypes(s, "string")
			}
		}
	}
	for _, key := range namedOnes {
		if named, ok := schema.values[key].(*Object); ok {
			for _, v := range named.values {
				if s, ok := v.(*Object); ok {
					inferTypes(s, "string")
				}
			}
		}
	}
	if _, has := schema.values["type"]; has || schema.values["$ref"] != nil {
		return
	}
	schema.Set("type", inferredType(schema, otherwise))
}

func inferredType(schema *Object, otherwise string) any {
	v := schema.values
	switch {
	case v["properties"] != nil || v["additionalProperties"] != nil || v["required"] != nil:
		return "object"
	case v["items"] != nil || v["prefixItems"] != nil:
		return "array"
	}
	if constant, ok := v["const"]; ok {
		return typesOf([]any{constant}, otherwise)
	}
	if values, ok := v["enum"].([]any); ok {
		return typesOf(values, otherwise)
	}
	for _, key := range manySchemas[:3] {
		list, _ := v[key].([]any)
		var types []any
		for _, item := range list {
			s, ok := item.(*Object)
			if !ok {
				continue
			}
			more, isList := s.values["type"].([]any)
			if !isList {
				more = []any{s.values["type"]}
			}
			for _, t := range more {
				types = addType(types, t)
			}
		}
		if len(types) > 0 {
			return oneOrMany(types)
		}
	}
	return otherwise
}

func typesOf(values []any, otherwise string) any {
	var types []any
	for _, v := range values {
		types = addType(types, jsonType(v))
	}
	if len(types) == 0 {
		return otherwise
	}
	return oneOrMany(types)
}

func addType(types []any, t any) []any {
	for _, known := range types {
		if known == t {
			return types
		}
	}
	if t == nil {
		return types
	}
	return append(types, t)
}

func oneOrMany(types []any) any {
	if len(types) == 1 {
		return types[0]
	}
	return types
}

func jsonType(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case *Object:
		return "object"
	case json.Number:
		if _, err := x.Int64(); err == nil {
			return "integer"
		}
	}
	return "number"
}

// ParseArguments gives the arguments of past calls to the template as the objects that they are: clients send them as texts.
func ParseArguments(messages []map[string]any) {
	for _, m := range messages {
		calls, _ := m["tool_calls"].([]any)
		for _, item := range calls {
			call, ok := item.(*Object)
			if !ok {
				continue
			}
			if fn, ok := call.values["function"].(*Object); ok {
				call = fn
			}
			text, ok := call.values["arguments"].(string)
			if !ok {
				continue
			}
			if text == "" {
				text = "{}"
			}
			if v, err := parseJSON([]byte(text)); err == nil {
				if o, ok := v.(*Object); ok {
					call.Set("arguments", o)
				}
			}
		}
	}
}
