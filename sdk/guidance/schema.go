package guidance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

const schemaSubject = "constraint.json_schema"

// drafts are the values of $schema that llguidance knows; it takes any other for the newest.
var drafts = []string{
	"https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema",
	"http://json-schema.org/draft-07/schema", "http://json-schema.org/draft-06/schema", "http://json-schema.org/draft-04/schema",
}

// readSchema checks what llguidance would overlook, and puts its options into the root.
func readSchema(text string, compact bool) (Grammar, error) {
	if len(text) > MaxBytes {
		return Grammar{}, contract.Errorf(contract.InvalidArgument, schemaSubject, "%d bytes, at most %d", len(text), MaxBytes)
	}
	tree, err := parseJSON(text)
	if err != nil {
		return Grammar{}, contract.Errorf(contract.InvalidArgument, schemaSubject, "not JSON: %w", err)
	}
	options := `{"` + optionsKey + `":` + string(optionsFor(compact))
	switch root := tree.(type) {
	case bool:
		if !root {
			return Grammar{}, contract.Errorf(contract.InvalidArgument, schemaSubject, "no value satisfies false")
		}
		tree, text = map[string]any{}, "{}"
	case map[string]any:
	default:
		return Grammar{}, contract.Errorf(contract.InvalidArgument, schemaSubject, "a schema is an object, true or false")
	}
	root := tree.(map[string]any)
	if _, given := root[optionsKey]; given {
		return Grammar{}, at("#/"+optionsKey, "options of the grammar engine are not a caller's")
	}
	if err := eachSchema(root, checkSchema); err != nil {
		return Grammar{}, err
	}
	rest := strings.TrimSpace(strings.TrimSpace(text)[1:])
	if rest != "}" {
		options += ","
	}
	return Grammar{kind: "json_schema", text: options + rest, subject: schemaSubject, schema: root}, nil
}

// parseJSON reads one JSON value whose numbers keep their digits, not nested too deep for parsers that recurse.
func parseJSON(text string) (any, error) {
	depth := 0
	for dec := json.NewDecoder(strings.NewReader(text)); ; {
		t, err := dec.Token()
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > MaxNesting {
				return nil, fmt.Errorf("it is nested deeper than %d", MaxNesting)
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the value")
	}
	return tree, nil
}

// at is an error about a place in a schema, named by its JSON pointer.
func at(pointer, format string, args ...any) *contract.Error {
	return contract.Errorf(contract.UnsupportedOption, schemaSubject+pointer, format, args...)
}

// Where schemas stand within a schema.
var (
	schemaMaps  = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
	schemaLists = []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}
	schemaOnes  = []string{
		"items", "additionalItems", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
		"unevaluatedProperties", "contentSchema",
	}
)

// eachSchema visits a schema and all within it, outer ones first, in an order that is always the same.
func eachSchema(root map[string]any, visit func(pointer string, schema map[string]any) error) error {
	var walk func(pointer string, v any) error
	walk = func(pointer string, v any) error {
		schema, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		if err := visit(pointer, schema); err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(schema)) {
			child, escaped := schema[key], pointer+"/"+escape(key)
			switch c := child.(type) {
			case map[string]any:
				if slices.Contains(schemaOnes, key) {
					if err := walk(escaped, c); err != nil {
						return err
					}
				}
				if !slices.Contains(schemaMaps, key) {
					continue
				}
				for _, name := range slices.Sorted(maps.Keys(c)) {
					if err := walk(escaped+"/"+escape(name), c[name]); err != nil {
						return err
					}
				}
			case []any:
				if !slices.Contains(schemaLists, key) {
					continue
				}
				for i, item := range c {
					if err := walk(escaped+"/"+strconv.Itoa(i), item); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
	return walk("#", root)
}

// escape is a name in a JSON pointer.
func escape(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }

// checkSchema refuses what llguidance would read as something else.
func checkSchema(pointer string, schema map[string]any) error {
	if v, ok := schema["$schema"]; ok {
		if s, isText := v.(string); !isText || !slices.Contains(drafts, strings.TrimSuffix(s, "#")) {
			return at(pointer+"/$schema", "%v is not one of %s", v, strings.Join(drafts, ", "))
		}
	}
	if _, ok := schema["additionalItems"]; ok {
		// It is about the items beside it; llguidance would apply it behind the longest list of all that is put together.
		for _, key := range []string{"allOf", "anyOf", "oneOf", "$ref"} {
			if _, beside := schema[key]; beside {
				return at(pointer+"/additionalItems", "additionalItems beside %s is not supported in constrained decoding", key)
			}
		}
	}
	for _, key := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "const", "enum"} {
		if v, ok := schema[key]; ok {
			if err := checkValue(pointer+"/"+key, v); err != nil {
				return err
			}
		}
	}
	return checkCount(pointer, schema)
}

// checkCount refuses to count properties whose names may come twice.
func checkCount(pointer string, schema map[string]any) error {
	least, ok := schema["minProperties"].(json.Number)
	if !ok {
		return nil
	}
	n, err := least.Int64()
	required, _ := schema["required"].([]any)
	_, patterns := schema["patternProperties"]
	if closed := schema["additionalProperties"] == false && !patterns; err == nil && n > 1 && n > int64(len(required)) && !closed {
		return at(pointer+"/minProperties", "more than one is supported only where names cannot come twice: with additionalProperties false and no patternProperties")
	}
	return nil
}

// checkValue refuses numbers that a double does not hold, as llguidance's bounds are doubles, and characters that JSON spells by
// number alone.
func checkValue(pointer string, v any) error {
	switch v := v.(type) {
	case json.Number:
		exact, ok := new(big.Rat).SetString(string(v))
		f, err := v.Float64()
		if !ok || err != nil || exact.IsInt() && new(big.Rat).SetFloat64(f).Cmp(exact) != 0 {
			return at(pointer, "%s is beyond the numbers that are exact", v)
		}
	case string:
		for _, r := range v {
			if r < ' ' && !strings.ContainsRune("\b\t\n\f\r", r) || r == 0x7F {
				return at(pointer, "the character %U is not supported in constrained decoding", r)
			}
		}
	case []any:
		for i, item := range v {
			if err := checkValue(pointer+"/"+strconv.Itoa(i), item); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if err := checkValue(pointer+"/"+escape(key), v[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

// marshal is JSON without HTML's escapes.
func marshal(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // it came from JSON
	return strings.TrimSpace(b.String())
}
