package generate

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func TestConstraintTravelsAsTheOneGrammarThatItIs(t *testing.T) {
	for _, c := range []struct {
		constraint Constraint
		option     string
		holds      func(*cladev1.Constraint) bool
	}{
		{Constraint{JSONSchema: `{}`}, "constraint.json_schema", func(c *cladev1.Constraint) bool { return c.GetJsonSchema() == "{}" }},
		{Constraint{JSONObject: true, Compact: true}, "constraint.json_object", func(c *cladev1.Constraint) bool { return c.GetJsonObject() && c.GetCompactWhitespace() }},
		{Constraint{Regex: "a"}, "constraint.regex", func(c *cladev1.Constraint) bool { return c.GetRegex() == "a" }},
		{Constraint{Lark: "start: \"a\""}, "constraint.lark", func(c *cladev1.Constraint) bool { return c.GetLark() == "start: \"a\"" }},
		{Constraint{Choice: []string{"a", "b"}}, "constraint.choice", func(c *cladev1.Constraint) bool { return len(c.GetChoice().GetOptions()) == 2 }},
	} {
		settings := Settings{Constraint: &c.constraint}
		wire, err := json.Marshal(settings) // as a server's own command line sends it
		require.NoError(t, err)
		var back Settings
		require.NoError(t, json.Unmarshal(wire, &back))
		r, err := Resolve(Layers{Request: back}, all)
		require.NoError(t, err)
		require.True(t, c.holds(r.Start("r", nil, 1).Constraint), c.option)
		_, err = Resolve(Layers{Request: back}, func(path string) bool { return path != c.option })
		require.ErrorContains(t, err, c.option+": the model's plugin does not honour it")
	}
}

func TestWhatIsNotOneGrammarIsRefused(t *testing.T) {
	for says, c := range map[string]Constraint{
		"want one grammar":  {},
		"want one grammar:": {Regex: "a", JSONObject: true},
		"is not JSON":       {JSONSchema: "{"},
		"at most":           {Regex: string(make([]byte, maxGrammar+1))},
		"want at least one": {Choice: []string{}},
	} {
		err := Settings{Constraint: &c}.Check()
		require.ErrorContains(t, err, says)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
	}
}

func TestToolsMakeTheSchemaOfACall(t *testing.T) {
	tools := json.RawMessage(`[{"type":"function","function":{"name":"a","parameters":{"type":"object"}}},{"type":"function","function":{"name":"b"}}]`)
	both, err := ToolsSchema(tools, AnyTool)
	require.NoError(t, err)
	require.JSONEq(t, `{"anyOf":[
		{"type":"object","properties":{"name":{"const":"a"},"arguments":{"type":"object"}},"required":["name","arguments"],"additionalProperties":false},
		{"type":"object","properties":{"name":{"const":"b"},"arguments":{"type":"object"}},"required":["name","arguments"],"additionalProperties":false}]}`, both)
	one, err := ToolsSchema(tools, "b")
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"object","properties":{"name":{"const":"b"},"arguments":{"type":"object"}},"required":["name","arguments"],"additionalProperties":false}`, one)
	_, err = ToolsSchema(tools, "c")
	require.ErrorContains(t, err, `"c" is none of the tools`)
}
