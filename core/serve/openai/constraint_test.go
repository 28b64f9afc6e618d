package openai

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/generate"
	"github.com/clademl/clade/sdk/contract"
)

const hello = `"messages":[{"role":"user","content":"hi"}]`

func TestEveryWayToAskForAGrammarIsRead(t *testing.T) {
	for body, want := range map[string]*generate.Constraint{
		`"response_format":{"type":"text"}`:        nil,
		`"response_format":{"type":"json_object"}`: {JSONObject: true},
		`"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"description":"d","schema":{"type":"null"}}}`: {JSONSchema: `{"type":"null"}`},
		`"structured_outputs":{"json":{"type":"null"}}`:                                     {JSONSchema: `{"type":"null"}`},
		`"structured_outputs":{"json":"{\"type\":\"null\"}","disable_any_whitespace":true}`: {JSONSchema: `{"type":"null"}`, Compact: true},
		`"structured_outputs":{"json_object":true,"regex":null}`:                            {JSONObject: true},
		`"structured_outputs":{"regex":"a+"}`:                                               {Regex: "a+"},
		`"structured_outputs":{"choice":["a","b"]}`:                                         {Choice: []string{"a", "b"}},
		`"structured_outputs":{"grammar":"start: \"a\""}`:                                   {Lark: `start: "a"`},
		`"guided_json":true`:              {JSONSchema: "true"},
		`"guided_regex":"a"`:              {Regex: "a"},
		`"guided_choice":["a"]`:           {Choice: []string{"a"}},
		`"guided_grammar":"start: \"a\""`: {Lark: `start: "a"`},
	} {
		q, err := parseChat([]byte("{" + hello + "," + body + "}"))
		require.NoError(t, err, body)
		require.Equal(t, want, q.settings.Constraint, body)
	}
}

func TestWhatIsNoGrammarIsRefusedByField(t *testing.T) {
	for body, param := range map[string]string{
		`"response_format":{"type":"xml"}`:                                                   "response_format.type",
		`"response_format":{"type":"text","json_schema":{}}`:                                 "response_format.json_schema",
		`"response_format":{"type":"json_schema"}`:                                           "response_format.json_schema",
		`"response_format":{"type":"json_schema","json_schema":{"name":"n"}}`:                "response_format.json_schema.schema",
		`"response_format":{"type":"json_schema","json_schema":{"schema":{},"strict":1}}`:    "response_format.json_schema.strict",
		`"response_format":{"type":"json_schema","json_schema":{"schema":{},"examples":[]}}`: "response_format.json_schema.examples",
		`"structured_outputs":{}`:                                                            "structured_outputs",
		`"structured_outputs":{"regex":"a","choice":["a"]}`:                                  "structured_outputs.regex",
		`"structured_outputs":{"structural_tag":"x"}`:                                        "structured_outputs.structural_tag",
		`"guided_choice":[]`: "guided_choice",
		`"guided_json":"{"`:  "guided_json",
		`"guided_regex":""`:  "guided_regex",
		`"guided_regex":"a","response_format":{"type":"json_object"}`: "response_format",
		`"guided_decoding_backend":"x"`:                               "guided_decoding_backend",
	} {
		_, err := parseChat([]byte("{" + hello + "," + body + "}"))
		var bad *paramError
		require.ErrorAs(t, err, &bad, body)
		require.Equal(t, param, bad.param, body)
		require.Contains(t, []contract.Kind{contract.InvalidArgument, contract.UnsupportedOption}, bad.err.Kind)
	}
}
