package openai

import (
	"encoding/json"
	"fmt"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/chat/toolcall"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

// toolChoice is what tool_choice asks for; name is set for one function.
type toolChoice struct {
	mode string // "", none, auto, required, function
	name string
}

// readTools checks the definitions and keeps them as the client wrote them.
func readTools(q *chatRequest, name string, raw json.RawMessage) error {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return badField(contract.InvalidArgument, name, "want a list of tools")
	}
	for i, item := range items {
		where := fmt.Sprintf("%s[%d]", name, i)
		tree, err := object(where, item)
		if err != nil {
			return err
		}
		var kind string
		if err := json.Unmarshal(tree["type"], &kind); err != nil || kind != "function" {
			return badField(contract.UnsupportedOption, where+".type", "only function is supported")
		}
		for _, key := range sortedKeys(tree) {
			if key != "type" && key != "function" {
				return badField(contract.UnsupportedOption, where+"."+key, "unknown or unsupported field")
			}
		}
		if err := checkFunction(where+".function", tree["function"]); err != nil {
			return err
		}
	}
	if len(items) > 0 {
		q.conversation.Tools = raw
	}
	return nil
}

func checkFunction(where string, raw json.RawMessage) error {
	tree, err := object(where, raw)
	if err != nil {
		return err
	}
	for _, key := range sortedKeys(tree) {
		path, value := where+"."+key, tree[key]
		var text string
		var schema map[string]json.RawMessage
		switch key {
		case "name":
			if json.Unmarshal(value, &text) != nil || text == "" {
				return badField(contract.InvalidArgument, path, "want a name")
			}
		case "description":
			if json.Unmarshal(value, &text) != nil {
				return badField(contract.InvalidArgument, path, "want a text")
			}
		case "parameters":
			if json.Unmarshal(value, &schema) != nil {
				return badField(contract.InvalidArgument, path, "want a JSON schema")
			}
		case "strict":
			var strict *bool // the loader holds the call to the schema
			if json.Unmarshal(value, &strict) != nil {
				return badField(contract.InvalidArgument, path, "want true or false")
			}
		default:
			return badField(contract.UnsupportedOption, path, "unknown or unsupported field")
		}
	}
	if tree["name"] == nil {
		return badField(contract.InvalidArgument, where+".name", "is missing")
	}
	return nil
}

func readToolChoice(q *chatRequest, name string, raw json.RawMessage) error {
	if json.Unmarshal(raw, &q.choice.mode) == nil {
		switch q.choice.mode {
		case "none", "auto", "required":
			return nil
		}
		return badField(contract.InvalidArgument, name, "%q is not none, auto, required or a function", q.choice.mode)
	}
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if err := json.Unmarshal(raw, &named); err != nil || named.Type != "function" || named.Function.Name == "" {
		return badField(contract.InvalidArgument, name, "want none, auto, required or {type: function, function: {name}}")
	}
	q.choice = toolChoice{"function", named.Function.Name}
	return nil
}

func readParallel(q *chatRequest, name string, raw json.RawMessage) error {
	var parallel bool
	if err := json.Unmarshal(raw, &parallel); err != nil {
		return badField(contract.InvalidArgument, name, "want true or false")
	}
	q.oneCall = !parallel
	return nil
}

func readDocuments(q *chatRequest, name string, raw json.RawMessage) error {
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return badField(contract.InvalidArgument, name, "want a list of objects")
	}
	if len(list) > 0 {
		q.conversation.Documents = raw
	}
	return nil
}

// finishTools applies tool_choice to the tools.
func (q *chatRequest) finishTools() error {
	tools := q.conversation.Tools
	if len(tools) > 0 {
		offered, err := toolcall.NewTools(tools)
		if err != nil {
			return err
		}
		if q.choice.mode == "function" {
			known := false
			for _, name := range offered.Names() {
				known = known || name == q.choice.name
			}
			if !known {
				return badField(contract.InvalidArgument, "tool_choice", "%q is none of the tools", q.choice.name)
			}
		}
	}
	switch q.choice.mode {
	case "required", "function":
		if len(tools) == 0 {
			return badField(contract.InvalidArgument, "tool_choice", "needs tools")
		}
		q.forced = q.choice.name
		if q.choice.mode == "required" {
			q.forced = generate.AnyTool
		}
	case "none":
		q.conversation.Tools = nil
	}
	return nil
}

// readCalls reads an assistant's past calls.
func readCalls(where string, raw json.RawMessage) ([]any, error) {
	if isNull(raw) {
		return nil, nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, badField(contract.InvalidArgument, where, "want a list of calls")
	}
	var out []any
	for i, item := range items {
		call, err := readCall(fmt.Sprintf("%s[%d]", where, i), item)
		if err != nil {
			return nil, err
		}
		out = append(out, call)
	}
	return out, nil
}

func readCall(where string, raw json.RawMessage) (*chat.Object, error) {
	tree, err := object(where, raw)
	if err != nil {
		return nil, err
	}
	var id, kind string
	for _, key := range sortedKeys(tree) {
		var err error
		switch key {
		case "id":
			err = json.Unmarshal(tree[key], &id)
		case "type":
			err = json.Unmarshal(tree[key], &kind)
		case "index", "function":
		default:
			return nil, badField(contract.UnsupportedOption, where+"."+key, "unknown or unsupported field")
		}
		if err != nil {
			return nil, badField(contract.InvalidArgument, where+"."+key, "want a text")
		}
	}
	if kind != "" && kind != "function" {
		return nil, badField(contract.UnsupportedOption, where+".type", "only function is supported")
	}
	var fn struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	if err := json.Unmarshal(tree["function"], &fn); err != nil || fn.Name == "" {
		return nil, badField(contract.InvalidArgument, where+".function", "want a name and arguments as a text")
	}
	return PastCall(id, fn.Name, fn.Arguments), nil
}

// PastCall is a call as templates read one.
func PastCall(id, name, arguments string) *chat.Object {
	function := chat.NewObject()
	function.Set("name", name)
	function.Set("arguments", arguments)
	call := chat.NewObject()
	call.Set("id", id)
	call.Set("type", "function")
	call.Set("function", function)
	return call
}
