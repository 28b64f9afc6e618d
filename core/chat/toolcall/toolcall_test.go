package toolcall

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const offered = `[
 {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
   "city": {"type": "string"}, "days": {"type": "integer"}, "share": {"type": "number"}, "now": {"type": "boolean"},
   "tags": {"type": "array"}, "more": {"type": "object"}, "note": {"type": ["string", "null"]}, "free": {}, "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}}}},
 {"type": "function", "function": {"name": "noop"}}
]`

func tools(t testing.TB) *Tools {
	t.Helper()
	out, err := NewTools([]byte(offered))
	require.NoError(t, err)
	return out
}

type want struct{ name, arguments, repairs string }

func TestEachSyntaxReadsItsCalls(t *testing.T) {
	long := strings.Repeat("x", 9000)
	for name, c := range map[string]struct {
		syntax *Syntax
		body   string
		want   []want
	}{
		"hermes":              {Tagged, "\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln\", \"days\": 2}}\n", []want{{"get_weather", `{"city":"Köln","days":2}`, ""}}},
		"hermes, keys turned": {Tagged, `{"arguments": {"b": 1, "a": 2}, "name": "noop"}`, []want{{"noop", `{"b":1,"a":2}`, ""}}},
		"hermes, text":        {Tagged, `{"name": "noop", "arguments": "{\"a\": 1}"}`, []want{{"noop", `{"a":1}`, ""}}},
		"hermes, none":        {Tagged, `{"name": "noop"}`, []want{{"noop", `{}`, ""}}},
		"hermes, list":        {Tagged, `[{"name": "noop"}, {"name": "noop", "arguments": null}]`, []want{{"noop", `{}`, ""}, {"noop", `{}`, ""}}},
		"hermes, two lines":   {Tagged, "{\"name\": \"noop\"}\n{\"name\": \"noop\"}", []want{{"noop", `{}`, ""}, {"noop", `{}`, ""}}},
		"openai's form":       {Tagged, `{"type": "function", "function": {"name": "noop", "arguments": {}}}`, []want{{"noop", `{}`, ""}}},
		"function as a name":  {Tagged, `{"function": "noop", "parameters": {"x": [1, {"y": null}]}}`, []want{{"noop", `{"x":[1,{"y":null}]}`, ""}}},
		"big numbers stay":    {Tagged, `{"name": "noop", "arguments": {"n": 12345678901234567890, "f": 1.0}}`, []want{{"noop", `{"n":12345678901234567890,"f":1.0}`, ""}}},
		"llama":               {BareJSON, `{"name": "get_weather", "parameters": {"city": "Oslo"}}`, []want{{"get_weather", `{"city":"Oslo"}`, ""}}},
		"llama, parallel":     {BareJSON, `{"name": "noop", "parameters": {}}; {"name": "noop", "parameters": {"a": 1}}`, []want{{"noop", `{}`, ""}, {"noop", `{"a":1}`, ""}}},
		"qwen": {
			Tagged, "\n<function=get_weather>\n<parameter=city>\nKöln &amp; <b>\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n",
			[]want{{"get_weather", `{"city":"Köln &amp; <b>","days":3}`, ""}},
		},
		"qwen, lines kept":    {Tagged, "<function=get_weather><parameter=city>\n\na\n b\n\n</parameter></function>", []want{{"get_weather", `{"city":"\na\n b\n"}`, ""}}},
		"qwen, marker inside": {Tagged, "<function=get_weather><parameter=city>a</parameter>b</parameter></function>", []want{{"get_weather", `{"city":"a</parameter>b"}`, ""}}},
		"qwen, no parameters": {QwenBare, "<function=noop>\n</function>", []want{{"noop", `{}`, ""}}},
		"types by schema": {
			Tagged, "<function=get_weather><parameter=city>123</parameter><parameter=now>True</parameter><parameter=share>0.5</parameter>" +
				"<parameter=tags>['a', None]</parameter><parameter=more>{\"k\": 1}</parameter><parameter=note>null</parameter><parameter=free>text</parameter><parameter=either>7</parameter><parameter=days>many</parameter></function>",
			[]want{{"get_weather", `{"city":"123","now":true,"share":0.5,"tags":["a",null],"more":{"k":1},"note":null,"free":"text","either":7,"days":"many"}`, ""}},
		},
		"glm":           {Tagged, "get_weather\n<arg_key>city</arg_key>\n<arg_value>A &lt; B</arg_value><arg_key>days</arg_key><arg_value>2</arg_value>", []want{{"get_weather", `{"city":"A < B","days":2}`, ""}}},
		"glm, no pairs": {Tagged, "noop", []want{{"noop", `{}`, ""}}},
		"minicpm5": {
			Attributes, `<function name="get_weather"><param name="city"><![CDATA[a < b & </param></function>` + "\n" + `]]></param><param name="days">3</param></function>`,
			[]want{{"get_weather", `{"city":"a < b & </param></function>\n","days":3}`, ""}},
		},
		"minicpm5, entities": {Attributes, `<function name='get_weather'> <param name="city">a &amp; b</param> </function>`, []want{{"get_weather", `{"city":"a & b"}`, ""}}},
		"gemma": {
			Gemma, `call:get_weather{city:<|"|>Kö, {ln}: "x"<|"|>,days:2,now:true,more:{k:[1,<|"|>b<|"|>],e:{}},note:null,free:bare text}`,
			[]want{{"get_weather", `{"city":"Kö, {ln}: \"x\"","days":2,"now":true,"more":{"k":[1,"b"],"e":{}},"note":null,"free":"bare text"}`, ""}},
		},
		"gemma, two":        {Gemma, `call:noop{}call:noop{a:-1.5e3}`, []want{{"noop", `{}`, ""}, {"noop", `{"a":-1.5e3}`, ""}}},
		"mistral":           {Mistral, `get_weather[ARGS]{"city": "Oslo"}`, []want{{"get_weather", `{"city":"Oslo"}`, ""}}},
		"mistral, id":       {Mistral, `get_weather[CALL_ID]abc123XYZ[ARGS]{"city": "Oslo"}`, []want{{"get_weather", `{"city":"Oslo"}`, ""}}},
		"mistral, list":     {Mistral, `[{"name": "noop", "arguments": {}}, {"name": "get_weather", "arguments": {"days": 1}}]`, []want{{"noop", `{}`, ""}, {"get_weather", `{"days":1}`, ""}}},
		"mistral, plain":    {Mistral, `noop{}`, []want{{"noop", `{}`, ""}}},
		"pythonic":          {Pythonic, `[get_weather(city="O'Slo", days=2, tags=['a', "b", (1, 2.5)], more={'k': True, 'n': None}), noop()]`, []want{{"get_weather", `{"city":"O'Slo","days":2,"tags":["a","b",[1,2.5]],"more":{"k":true,"n":null}}`, ""}, {"noop", `{}`, ""}}},
		"pythonic, escapes": {BarePython, `[get_weather(city='a\n\'b\' \u00e9\x41 \ud83d\ude00', note="""x"y""")]`, []want{{"get_weather", `{"city":"a\n'b' éA 😀","note":"x\"y"}`, ""}}},
		"pythonic, places":  {Pythonic, `get_weather("Oslo", 3)`, []want{{"get_weather", `{"city":"Oslo","days":3}`, ""}}},
		"lfm's json":        {Pythonic, `[{"name": "noop", "arguments": {}}]`, []want{{"noop", `{}`, ""}}},
		"long":              {Tagged, `{"name": "noop", "arguments": {"a": "` + long + `"}}`, []want{{"noop", `{"a":"` + long + `"}`, ""}}},
		// Repairs, recorded.
		"fence":                {Tagged, "```json\n{\"name\": \"noop\"}\n```", []want{{"noop", `{}`, "fence"}}},
		"prose":                {Tagged, "Sure, here it is: {\"name\": \"noop\"} Done.", []want{{"noop", `{}`, "prose"}}},
		"trailing commas":      {Tagged, `{"name": "noop", "arguments": {"a": [1, 2,], "b": "x,}",},}`, []want{{"noop", `{"a":[1,2],"b":"x,}"}`, "trailing commas"}}},
		"python literals":      {Tagged, `{"name": "noop", "arguments": {"a": True, "b": None, "c": "True"}}`, []want{{"noop", `{"a":true,"b":null,"c":"True"}`, "python literals"}}},
		"single quotes":        {Tagged, `{'name': 'noop', 'arguments': {'a': 'it\'s "x"'}}`, []want{{"noop", `{"a":"it's \"x\""}`, "single quotes"}}},
		"unbalanced":           {Tagged, `{"name": "noop", "arguments": {"a": [1`, []want{{"noop", `{"a":[1]}`, "unbalanced brackets"}}},
		"one brace too many":   {Tagged, `{"name": "noop", "arguments": {}}}`, []want{{"noop", `{}`, "unbalanced brackets"}}},
		"name inside":          {Tagged, `{"arguments": {"name": "noop", "a": 1}}`, []want{{"noop", `{"a":1}`, "name inside arguments"}}},
		"several repairs":      {Tagged, "```\n{'name': 'noop', 'arguments': {'a': True,},}\n```", []want{{"noop", `{"a":true}`, "fence, trailing commas, python literals, single quotes"}}},
		"mistral, repaired":    {Mistral, `noop[ARGS]{"a": [1, 2,]}`, []want{{"noop", `{"a":[1,2]}`, "trailing commas"}}},
		"json for gemma":       {Gemma, `{"name": "noop", "arguments": {}}`, []want{{"noop", `{}`, "JSON"}}},
		"a text that is cut":   {Tagged, `{"name": "noop", "arguments": {"a": "b`, nil},
		"not json":             {Tagged, "I will call noop now", nil},
		"unknown tool":         {Tagged, `{"name": "rm", "arguments": {}}`, nil},
		"arguments are a list": {Tagged, `{"name": "noop", "arguments": [1]}`, nil},
		"nothing":              {Tagged, " \n", nil},
		"gemma, no end":        {Gemma, `call:noop{a:1`, nil},
		"gemma, deep":          {Gemma, "call:noop{a:" + strings.Repeat("[", 500), nil},
		"python, deep":         {BarePython, "[noop(a=" + strings.Repeat("(", 5000), nil},
		"python, code":         {Pythonic, `[noop(a=__import__("os").system("x"))]`, nil},
		"pythonic, too many":   {Pythonic, `noop(1)`, nil},
		"glm, no value":        {Tagged, "noop<arg_key>a</arg_key>", nil},
		"minicpm5, cdata":      {Attributes, `<function name="noop"><param name="a"><![CDATA[x</param></function>`, nil},
		"name is a number":     {Tagged, `{"name": 3, "arguments": {}}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.syntax.Read(c.body, true, tools(t))
			if c.want == nil {
				require.Error(t, err)
				require.NotContains(t, err.Error(), "\n")
				return
			}
			require.NoError(t, err)
			require.Len(t, got, len(c.want))
			for i, w := range c.want {
				require.Equal(t, w, want{got[i].Name, got[i].Arguments, strings.Join(got[i].Repairs, ", ")})
				require.True(t, json.Valid([]byte(got[i].Arguments)))
			}
		})
	}
}

func TestCallThatWasNotClosedIsReadOnlyIfItIsWhole(t *testing.T) {
	got, err := Tagged.Read(`{"name": "noop", "arguments": {}}`, false, tools(t))
	require.NoError(t, err)
	require.Equal(t, []string{"no closing marker"}, got[0].Repairs)
	_, err = Tagged.Read(`{"name": "noop", "arguments": {"a": [1`, false, tools(t))
	require.Error(t, err, "an argument that was cut is not completed")
}

func TestSyntaxIsChosenBySentinelsThenByTheTemplate(t *testing.T) {
	for _, c := range []struct {
		template, open, end string
		want                *Syntax
	}{
		{"", "<|tool_call>", "<tool_call|>", Gemma},
		{"x <|tool_call>call:f{}<tool_call|>", "", "", Gemma},
		{"<tool_call>\n<function=f>", "", "", Tagged},
		{"<tool_call>{name}<arg_key>", "", "", Tagged},
		{`<function name="f"><param name="p">`, "", "", Attributes},
		{"[TOOL_CALLS]", "", "", Mistral},
		{"<|tool_call_start|>[f()]<|tool_call_end|>", "", "", Pythonic},
		{`Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.`, "", "", PythonTag},
		{"[func_name1(params_name1=params_value1)]", "", "", PythonTag},
		{"", "", "", Tagged},
	} {
		require.Same(t, c.want, Detect(c.template, c.open, c.end)[0], c.template)
	}
}

func TestToolOfferedTwiceIsRefused(t *testing.T) {
	_, err := NewTools([]byte(`[{"function": {"name": "a"}}, {"function": {"name": "a"}}]`))
	require.ErrorContains(t, err, "twice")
}

// FuzzRead holds that no body panics and that every call that is read can be sent.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		`{"name": "noop", "arguments": {"a": [1, {"b": null}]}}`, "<function=noop><parameter=a>\n1\n</parameter></function>",
		"noop<arg_key>a</arg_key><arg_value>b</arg_value>", `<function name="noop"><param name="a"><![CDATA[x]]></param></function>`,
		`call:noop{a:<|"|>x<|"|>,b:[1,{c:true}]}`, `noop[ARGS]{"a": 1}`, `[noop(a='x', b=[1, None])]`, "```json\n{'name': 'noop',}\n```",
	} {
		f.Add(s)
	}
	all := []*Syntax{Tagged, QwenBare, Attributes, Gemma, Pythonic, Mistral, PythonTag, BareJSON, BarePython}
	t := tools(f)
	f.Fuzz(func(test *testing.T, body string) {
		for _, s := range all {
			s.Complete(body, t)
			s.InValue(body)
			for _, closed := range []bool{true, false} {
				calls, err := s.Read(body, closed, t)
				if err == nil && len(calls) == 0 {
					test.Fatalf("%s: no calls and no reason", s.Name)
				}
				for _, c := range calls {
					var object map[string]json.RawMessage
					if err := json.Unmarshal([]byte(c.Arguments), &object); err != nil || object == nil {
						test.Fatalf("%s: arguments %q: %v", s.Name, c.Arguments, err)
					}
				}
			}
		}
	})
}
