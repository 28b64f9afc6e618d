package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// roles maps the API's roles to the ones templates know.
var roles = map[string]string{"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}

func readMessages(q *chatRequest, name string, raw json.RawMessage) error {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return badField(contract.InvalidArgument, name, "want a list of messages")
	}
	for i, item := range items {
		m, err := readMessage(fmt.Sprintf("%s[%d]", name, i), item)
		if err != nil {
			return err
		}
		q.conversation.Messages = append(q.conversation.Messages, m)
	}
	return nil
}

// readMessage accepts role, content and name, an assistant's calls and reasoning, and the call that a tool answers; what assistant
// messages of OpenAI carry as null is accepted as null.
func readMessage(where string, raw json.RawMessage) (map[string]any, error) {
	tree, err := object(where, raw)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, key := range sortedKeys(tree) {
		path, value := where+"."+key, tree[key]
		switch key {
		case "role":
			var role string
			if err := json.Unmarshal(value, &role); err != nil {
				return nil, badField(contract.InvalidArgument, path, "want a text")
			}
			known, ok := roles[role]
			if !ok {
				return nil, badField(contract.UnsupportedOption, path, "%q is not one of system, developer, user, assistant, tool", role)
			}
			out["role"] = known
		case "content":
			if isNull(value) {
				continue // an assistant's that only called tools; else missing
			}
			if out["content"], err = readContent(path, value); err != nil {
				return nil, err
			}
		case "name", "tool_call_id", "reasoning_content", "reasoning":
			if key == "reasoning" {
				key = "reasoning_content"
			}
			if isNull(value) {
				continue
			}
			var text string
			if err := json.Unmarshal(value, &text); err != nil {
				return nil, badField(contract.InvalidArgument, path, "want a text")
			}
			out[key] = text
		case "tool_calls":
			calls, err := readCalls(path, value)
			if err != nil {
				return nil, err
			}
			if len(calls) > 0 {
				out["tool_calls"] = calls
			}
		case "refusal", "audio", "annotations", "function_call":
			if !isNull(value) && string(value) != "[]" {
				return nil, badField(contract.UnsupportedOption, path, "is not supported")
			}
		default:
			return nil, badField(contract.UnsupportedOption, path, "unknown or unsupported field")
		}
	}
	if out["role"] == nil {
		return nil, badField(contract.InvalidArgument, where+".role", "is missing")
	}
	return out, checkMessage(where, out)
}

// checkMessage holds what the fields of a message mean together.
func checkMessage(where string, m map[string]any) error {
	role := m["role"]
	if m["content"] == nil {
		if role != "assistant" || m["tool_calls"] == nil {
			return badField(contract.InvalidArgument, where+".content", "is missing")
		}
		m["content"] = ""
	}
	for field, of := range map[string]string{"tool_calls": "assistant", "reasoning_content": "assistant", "tool_call_id": "tool"} {
		if m[field] != nil && role != of {
			return badField(contract.InvalidArgument, where+"."+field, "belongs to messages of the role %s", of)
		}
	}
	if role == "tool" && m["tool_call_id"] == nil {
		return badField(contract.InvalidArgument, where+".tool_call_id", "is missing")
	}
	return nil
}

// readContent joins text parts, as templates take one text.
func readContent(path string, raw json.RawMessage) (string, error) {
	var text string
	if !isNull(raw) && json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil || isNull(raw) {
		return "", badField(contract.InvalidArgument, path, "want a text or a list of parts")
	}
	var b strings.Builder
	for i, part := range parts {
		where := fmt.Sprintf("%s[%d]", path, i)
		tree, err := object(where, part)
		if err != nil {
			return "", err
		}
		var kind string
		if err := json.Unmarshal(tree["type"], &kind); err != nil || kind != "text" {
			return "", badField(contract.UnsupportedOption, where+".type", "only text parts are supported")
		}
		for _, key := range sortedKeys(tree) {
			if key != "type" && key != "text" {
				return "", badField(contract.UnsupportedOption, where+"."+key, "unknown or unsupported field")
			}
		}
		if err := json.Unmarshal(tree["text"], &text); err != nil {
			return "", badField(contract.InvalidArgument, where+".text", "want a text")
		}
		b.WriteString(text)
	}
	return b.String(), nil
}
