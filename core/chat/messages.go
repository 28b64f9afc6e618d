package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// ParseMessages reads the messages of a chat request: a JSON list of objects with a role, whose content is a string, null
// or a list of text parts. Text parts become one string, null becomes "". Objects within a message, such as tool calls,
// are *Object and keep the order of their keys. A part of another type is refused by its type.
func ParseMessages(data []byte) ([]map[string]any, error) {
	list, err := parseList("messages", data)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, contract.Errorf(contract.InvalidArgument, "messages", "the list is empty")
	}
	messages := make([]map[string]any, len(list))
	for i, item := range list {
		here := fmt.Sprintf("messages[%d]", i)
		o, ok := item.(*Object)
		if !ok {
			return nil, contract.Errorf(contract.InvalidArgument, here, "is not an object")
		}
		if role, ok := o.values["role"].(string); !ok || role == "" {
			return nil, contract.Errorf(contract.InvalidArgument, here+".role", "must be a string such as user")
		}
		content, err := textContent(here+".content", o.values["content"])
		if err != nil {
			return nil, err
		}
		o.Set("content", content)
		messages[i] = o.values
	}
	return messages, nil
}

func textContent(here string, v any) (string, error) {
	switch c := v.(type) {
	case nil:
		return "", nil
	case string:
		return c, nil
	case []any:
		var b strings.Builder
		for i, part := range c {
			text, err := textPart(fmt.Sprintf("%s[%d]", here, i), part)
			if err != nil {
				return "", err
			}
			b.WriteString(text)
		}
		return b.String(), nil
	}
	return "", contract.Errorf(contract.InvalidArgument, here, "must be a string or a list of parts")
}

func textPart(here string, v any) (string, error) {
	part, ok := v.(*Object)
	if !ok {
		return "", contract.Errorf(contract.InvalidArgument, here, "is not an object with a type")
	}
	kind, ok := part.values["type"].(string)
	if !ok {
		return "", contract.Errorf(contract.InvalidArgument, here+".type", "must be a string such as text")
	}
	if kind != "text" {
		return "", contract.Errorf(contract.UnsupportedOption, here, "a part of type %q is not supported; only text is", kind)
	}
	text, ok := part.values["text"].(string)
	if !ok {
		return "", contract.Errorf(contract.InvalidArgument, here+".text", "must be a string")
	}
	return text, nil
}

func parseList(name string, data []byte) ([]any, error) {
	v, err := parseJSON(data)
	if err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, name, "cannot be read: %w", err)
	}
	list, ok := v.([]any)
	if !ok {
		return nil, contract.Errorf(contract.InvalidArgument, name, "must be a list")
	}
	return list, nil
}

// parseJSON reads one value: *Object, []any, string, json.Number, bool or nil.
func parseJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind the value")
	}
	return v, nil
}

func parseValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch tok {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		o := NewObject()
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			o.Set(key.(string), v)
		}
		_, err = d.Token()
		return o, err
	}
	return tok, nil
}
