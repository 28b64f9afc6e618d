package loader

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/chat"
	"github.com/clademl/clade/core/chat/reply"
	"github.com/clademl/clade/core/chat/toolcall"
	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/tokenizer"
)

var twoTools = json.RawMessage(`[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},{"type":"function","function":{"name":"g"}}]`)

func TestAForcedCallIsHeldToTheModelsOwnFormat(t *testing.T) {
	const call = `{"type":"object","properties":{"name":{"const":"f"},"arguments":{"type":"object"}},"required":["name","arguments"],"additionalProperties":false}`
	inLark := `call: %json {"x-guidance":{"whitespace_flexible":false,"json_allowed_escapes":"nrbtf\\\""},` + call[1:]
	p := generate.Prompt{Tools: twoTools, Call: "f"}

	tagged := &text{syntaxes: []*toolcall.Syntax{toolcall.Tagged, toolcall.BareJSON}}
	c, err := tagged.held(p, nil)
	require.NoError(t, err)
	require.Equal(t, "start: \"\\u003ctool_call\\u003e\" \"\\n\" call \"\\n\" \"\\u003c/tool_call\\u003e\"\n"+inLark+"\n", c.Lark)

	tagged.tokenizer, err = tokenizer.FromJSON([]byte(`{"version":"1.0","added_tokens":[{"id":0,"content":"<tool_call>","special":true},
		{"id":1,"content":"</tool_call>","special":true}],"model":{"type":"BPE","vocab":{"<tool_call>":0,"</tool_call>":1,"a":2},"merges":[]}}`), nil)
	require.NoError(t, err)
	c, err = tagged.held(p, nil)
	require.NoError(t, err)
	require.Equal(t, `start: <[0]> "\n" call "\n" <[1]>`+"\n"+inLark+"\n", c.Lark)

	bare := &text{syntaxes: []*toolcall.Syntax{toolcall.Attributes, toolcall.BareJSON}}
	c, err = bare.held(p, nil)
	require.NoError(t, err)
	require.JSONEq(t, call, c.JSONSchema)

	_, err = (&text{syntaxes: []*toolcall.Syntax{toolcall.Gemma}}).held(p, nil)
	require.ErrorContains(t, err, "a call cannot be forced")
	_, err = bare.held(p, &generate.Constraint{Regex: "a"})
	require.ErrorContains(t, err, "held to another grammar")
}

func TestAGrammarHasNoPlaceBehindAnOpenThought(t *testing.T) {
	_, err := (&text{}).held(generate.Prompt{Inside: true}, &generate.Constraint{Regex: "a"})
	require.Equal(t, contract.UnsupportedOption, contract.KindOf(err))
	require.ErrorContains(t, err, "switch reasoning off")
	c, err := (&text{}).held(generate.Prompt{Inside: true}, nil)
	require.NoError(t, err)
	require.Nil(t, c)
}

func TestAnAnswerHeldToAGrammarAsksForNoThought(t *testing.T) {
	on := true
	model := &text{abilities: chat.Abilities{Switch: "enable_thinking", On: true}}
	o, p := chat.RenderOptions{Kwargs: map[string]any{}}, generate.Prompt{}
	require.NoError(t, model.think(chat.Conversation{Held: true}, &on, &o, &p))
	require.Equal(t, false, o.Kwargs["enable_thinking"])
	require.ErrorContains(t, model.think(chat.Conversation{Held: true, Thinking: &on}, nil, &o, &p), "no room for a thought")
}

// strictTools: the arguments of f follow its schema, g's are any object.
var strictTools = json.RawMessage(`[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}},
	{"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{"b":{"type":"integer"}}}}}]`)

func TestCallsOfStrictFunctionsFollowTheirSchemasAndAllElseIsFree(t *testing.T) {
	const call = `call: %json {"x-guidance":{"whitespace_flexible":false,"json_allowed_escapes":"nrbtf\\\""},"anyOf":[` +
		`{"type":"object","properties":{"name":{"const":"f"},"arguments":{"type":"object","properties":{"a":{"type":"integer"}}}},"required":["name","arguments"],"additionalProperties":false},` +
		`{"type":"object","properties":{"name":{"const":"g"},"arguments":{"type":"object"}},"required":["name","arguments"],"additionalProperties":false}]}` + "\n"
	p := generate.Prompt{Tools: strictTools, Inside: true}
	think := &reply.Reasoning{Open: "<think>", Close: "</think>"}

	model := &text{syntaxes: []*toolcall.Syntax{toolcall.Tagged, toolcall.BareJSON}, reasoning: think}
	c, err := model.held(p, nil)
	require.NoError(t, err)
	require.Equal(t, `start: (head call "\n" "\u003c/tool_call\u003e")* FREE?`+"\n"+`head[lazy]: /(?s:.*)<tool_call>\n/`+"\n"+
		`FREE: /(?s:.+)/ & ~/(?s:.*)<tool_call>(?s:.*)/ & ~/\s*\{(?s:.*)/`+"\n"+call, c.Lark, "markers that are text; sdk/guidance runs it")

	model.tokenizer, err = tokenizer.FromJSON([]byte(`{"version":"1.0","added_tokens":[{"id":0,"content":"<tool_call>","special":true},
		{"id":1,"content":"</tool_call>","special":true},{"id":3,"content":"</think>","special":true}],
		"model":{"type":"BPE","vocab":{"<tool_call>":0,"</tool_call>":1,"a":2,"</think>":3},"merges":[]}}`), nil)
	require.NoError(t, err)
	c, err = model.held(p, nil)
	require.NoError(t, err)
	require.Equal(t, "start: free* (one free*)*\n"+`one: <[0]> "\n" call "\n" <[1]>`+"\nfree: FREE | <[3]>\n"+`FREE: /(?s:.+)/ & ~/\s*\{(?s:.*)/`+"\n"+call, c.Lark)

	model = &text{syntaxes: []*toolcall.Syntax{toolcall.BareJSON}}
	c, err = model.held(p, nil)
	require.NoError(t, err)
	require.Equal(t, "start: call | FREE\n"+`FREE: /(?s:.+)/ & ~/\s*\{(?s:.*)/`+"\n"+call, c.Lark)

	_, err = (&text{syntaxes: []*toolcall.Syntax{toolcall.Gemma}}).held(p, nil)
	require.Equal(t, contract.UnsupportedOption, contract.KindOf(err))
	require.ErrorContains(t, err, "strict")
	p.Tools = twoTools
	c, err = model.held(p, nil)
	require.NoError(t, err)
	require.Nil(t, c, "none is strict")
}
