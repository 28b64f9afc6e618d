package openai

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// loraField is the body's choice of adapters.
const loraField = "lora"

// ReadAdapters reads a choice of adapters: a list of {id, scale}, as llama.cpp's server takes it but by name, or a text as the command
// line spells it ("a+b:0.5", "none"). An empty list is none.
func ReadAdapters(name string, raw json.RawMessage) (*string, error) {
	var choice string
	if json.Unmarshal(raw, &choice) != nil {
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, badField(contract.InvalidArgument, name, `want a list of {"id": NAME, "scale": NUMBER}, or a text such as "a+b:0.5" or "none"`)
		}
		parts := make([]string, 0, len(list))
		for i, item := range list {
			part, err := readAdapter(name+"["+strconv.Itoa(i)+"]", item)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		}
		if choice = strings.Join(parts, "+"); len(parts) == 0 {
			choice = contract.NoAdapter
		}
	}
	if _, err := contract.ParseAdapters(choice); err != nil {
		return nil, badField(contract.InvalidArgument, name, "%w", err)
	}
	return &choice, nil
}

// readAdapter reads one {id, scale} and spells it as a part of a choice.
func readAdapter(where string, raw json.RawMessage) (string, error) {
	tree, err := object(where, raw)
	if err != nil {
		return "", err
	}
	var id string
	var scale *float64
	for _, key := range sortedKeys(tree) {
		switch key {
		case "id":
			if err := json.Unmarshal(tree[key], &id); err != nil {
				return "", badField(contract.InvalidArgument, where+".id", "want an adapter's name; GET /v1/models lists them")
			}
		case "scale":
			if err := json.Unmarshal(tree[key], &scale); err != nil {
				return "", badField(contract.InvalidArgument, where+".scale", "want a number")
			}
		default:
			return "", badField(contract.UnsupportedOption, where+"."+key, "unknown or unsupported field")
		}
	}
	if err := contract.CheckAdapterID(id); err != nil {
		return "", badField(contract.InvalidArgument, where+".id", "%w", err)
	}
	if scale == nil {
		return id, nil
	}
	if err := contract.CheckAdapterScale(id, *scale); err != nil {
		return "", badField(contract.InvalidArgument, where+".scale", "%w", err)
	}
	return id + ":" + strconv.FormatFloat(*scale, 'f', -1, 64), nil // an exponent's sign would part the stack
}

func readLoRA(q *chatRequest, name string, raw json.RawMessage) (err error) {
	q.settings.Adapter, err = ReadAdapters(name, raw)
	return err
}
