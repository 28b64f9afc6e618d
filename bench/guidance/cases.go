package main

import "github.com/clademl/clade/sdk/contract/cladev1"

// prose is free text as models write it into strings.
const prose = "The committee met on Tuesday; after a long discussion about the budget, it agreed (nine votes to two) that the bridge over the " +
	"river will be rebuilt by 2031. Ça coûtera 3,5 millions d'euros, environ. 橋は来年から工事に入ります。 \\\"Nobody expected it,\\\" said the mayor."

// cases are grammars of the kinds that people use, each with a text that fits: function calls, extraction with free strings,
// nested lists, unions, formats, numbers with bounds, any JSON, an expression, a Lark grammar and a choice.
func cases() []grammarText {
	person := `{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
		"email":{"type":"string","format":"email"},"tags":{"type":"array","items":{"type":"string"}}},"required":["name","age"],"additionalProperties":false}`
	return []grammarText{
		{schema(person), `{"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "tags": ["mathematics", "engines", "poetry"]}`},
		{
			schema(`{"type":"object","properties":{"summary":{"type":"string"},"title":{"type":"string","maxLength":80}},"required":["summary"]}`),
			`{"summary": "` + prose + `", "title": "A bridge"}`,
		},
		{
			schema(`{"type":"array","items":` + person + `}`),
			`[{"name": "Ada", "age": 36}, {"name": "Grace", "age": 85, "tags": []}, {"name": "Emmy", "age": 53, "tags": ["rings", "ideals"]}]`,
		},
		{
			schema(`{"anyOf":[{"type":"object","properties":{"name":{"const":"get_weather"},"arguments":{"type":"object","properties":{"city":{"type":"string"},
			"unit":{"enum":["celsius","fahrenheit"]}},"required":["city"],"additionalProperties":false}},"required":["name","arguments"],"additionalProperties":false},
			{"type":"object","properties":{"name":{"const":"search"},"arguments":{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer"}},
			"required":["query"],"additionalProperties":false}},"required":["name","arguments"],"additionalProperties":false}]}`),
			`{"name": "search", "arguments": {"query": "rebuilding of the old bridge", "limit": 10}}`,
		},
		{
			schema(`{"type":"object","properties":{"at":{"type":"string","format":"date-time"},"id":{"type":"string","format":"uuid"},"zip":{"type":"string",
			"pattern":"^[0-9]{5}(-[0-9]{4})?$"},"price":{"type":"number","exclusiveMinimum":0,"maximum":1000000}},"required":["at","id","zip","price"]}`),
			`{"at": "2026-11-30T07:02:49Z", "id": "123e4567-e89b-12d3-a456-426614174000", "zip": "90210-1234", "price": 1234.56}`,
		},
		{
			schema(`{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"value":{"type":"string"},"children":{"type":"array",
			"items":{"$ref":"#/$defs/node"}}},"required":["value"]}}}`),
			`{"value": "root", "children": [{"value": "left", "children": []}, {"value": "right", "children": [{"value": "leaf"}]}]}`,
		},
		{
			&cladev1.Constraint{Grammar: &cladev1.Constraint_JsonObject{JsonObject: true}},
			"{\n  \"report\": {\n    \"text\": \"" + prose + "\",\n    \"numbers\": [1, 2.5, -3e10, null, true]\n  }\n}",
		},
		{&cladev1.Constraint{Grammar: &cladev1.Constraint_Regex{Regex: `(\+\d{1,3} )?\(?\d{3}\)?[- ]\d{3}-\d{4}( ext\. [0-9]+)?`}}, "+1 (555) 123-4567 ext. 89"},
		{&cladev1.Constraint{Grammar: &cladev1.Constraint_Lark{Lark: "start: sum\nsum: product ((\" + \" | \" - \") product)*\nproduct: atom ((\" * \" | \" / \") atom)*\n" +
			"atom: NUMBER | \"(\" sum \")\"\nNUMBER: /[0-9]+(\\.[0-9]+)?/\n"}}, "(12 + 3.5) * 7 - 100 / (4 - 2) + 8 * 8 - 9"},
		{
			&cladev1.Constraint{Grammar: &cladev1.Constraint_Choice{Choice: &cladev1.Choice{Options: []string{"strongly agree", "agree", "neutral", "disagree", "strongly disagree"}}}},
			"strongly disagree",
		},
	}
}
