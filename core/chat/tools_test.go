package chat

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestTypesThatASchemaLeavesOutAreInferred(t *testing.T) {
	tools, err := PrepareTools([]byte(`[{"type": "function", "function": {"name": "f", "parameters": {"properties": {
		"a": {"description": "d"}, "b": {"enum": [1, 2]}, "c": {"enum": ["x", null]}, "d": {"items": {}}, "e": {"properties": {"z": {}}},
		"f": {"const": 1.5}, "g": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "h": {"type": "boolean"}, "i": {"$ref": "#/x"}}}}}]`))
	require.NoError(t, err)
	data, err := json.Marshal(tools)
	require.NoError(t, err)
	require.JSONEq(t, `[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
		"a": {"description": "d", "type": "string"}, "b": {"enum": [1, 2], "type": "integer"}, "c": {"enum": ["x", null], "type": ["string", "null"]},
		"d": {"type": "array", "items": {"type": "string"}}, "e": {"type": "object", "properties": {"z": {"type": "string"}}},
		"f": {"const": 1.5, "type": "number"}, "g": {"anyOf": [{"type": "integer"}, {"type": "null"}], "type": ["integer", "null"]},
		"h": {"type": "boolean"}, "i": {"$ref": "#/x"}}}}}]`, string(data))
	require.Contains(t, string(data), `{"description":"d","type":"string"}`, "a type goes last")
}

func TestToolWithoutANameIsRefused(t *testing.T) {
	for _, in := range []string{`{}`, `[1]`, `[{}]`, `[{"function": {"name": ""}}]`} {
		_, err := PrepareTools([]byte(in))
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), in)
	}
}

func TestArgumentsOfPastCallsReachTheTemplateAsObjects(t *testing.T) {
	messages, err := ParseMessages([]byte(`[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\"z\": 1, \"a\": [2]}"}}, {"function": {"name": "g", "arguments": "no JSON"}}, {"function": {"name": "h", "arguments": ""}}]}]`))
	require.NoError(t, err)
	ParseArguments(messages)
	tpl, err := NewTemplate("{{ messages[0].tool_calls | tojson }}", nil)
	require.NoError(t, err)
	got, err := tpl.Render(messages, RenderOptions{})
	require.NoError(t, err)
	require.Equal(t, `[{"function": {"name": "f", "arguments": {"z": 1, "a": [2]}}}, {"function": {"name": "g", "arguments": "no JSON"}}, {"function": {"name": "h", "arguments": {}}}]`, got)
}

func TestAbilitiesAreFoundByRendering(t *testing.T) {
	for name, want := range map[string]Abilities{
		"Qwen3-8B-Q8_0.jinja":                  {Switch: "enable_thinking", On: true, Tools: true},
		"gemma-4-26B-A4B-it-UD-Q8_K_XL.jinja":  {Switch: "enable_thinking", On: false, Tools: true},
		"Qwen3-VL-30B-A3B-Instruct-Q8_0.jinja": {Tools: true},
		"Llama-3.2-1B-Instruct-GGUF.jinja":     {Tools: true},
		"smollm2":                              {},
		"minicpm5":                             {Switch: "enable_thinking", On: true, Tools: true},
		"Qwen3.5-35B-A3B-Q8_0.jinja":           {Switch: "enable_thinking", On: true, Tools: true},
		"GLM-5.2.jinja":                        {Switch: "enable_thinking", On: true, Tools: true},
		"Mistral-Medium-3.5-128B-GGUF.jinja":   {Tools: true},
		"Qwen2-Audio-7B.Q8_0.jinja":            {},
	} {
		tpl, err := NewTemplate(templateSource(t, name), map[string]string{"bos_token": "<s>", "eos_token": "</s>"})
		require.NoError(t, err)
		require.Equal(t, want, tpl.Probe(), name)
	}
}

func TestConversationTravelsWithTheOrderOfItsKeys(t *testing.T) {
	messages, err := ParseMessages([]byte(`[{"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "f", "arguments": {"z": 1, "a": 2}}}]}]`))
	require.NoError(t, err)
	on := true
	in := Conversation{Messages: messages, Tools: json.RawMessage(`[{"z":1,"a":2}]`), Thinking: &on, Effort: "high", Kwargs: map[string]any{"k": "v"}}
	data, err := json.Marshal(in)
	require.NoError(t, err)
	var out Conversation
	require.NoError(t, json.Unmarshal(data, &out))
	require.Equal(t, in, out)
	require.Contains(t, string(data), `{"z":1,"a":2}`)
}

func TestEffortBeatsTheSwitchBeatsTheVariable(t *testing.T) {
	on, off := true, false
	for want, c := range map[*bool]Conversation{
		&on:  {Effort: "low", Thinking: &off, Kwargs: map[string]any{"enable_thinking": false}},
		&off: {Effort: "none", Thinking: &on},
	} {
		require.Equal(t, *want, *c.AsksThinking("enable_thinking"))
	}
	require.False(t, *Conversation{Thinking: &off, Kwargs: map[string]any{"enable_thinking": true}}.AsksThinking("enable_thinking"))
	require.True(t, *Conversation{Kwargs: map[string]any{"enable_thinking": true}}.AsksThinking("enable_thinking"))
	require.Nil(t, Conversation{}.AsksThinking("enable_thinking"))
}
