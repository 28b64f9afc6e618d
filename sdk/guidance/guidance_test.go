package guidance

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

func regex(text string) *cladev1.Constraint {
	return &cladev1.Constraint{Grammar: &cladev1.Constraint_Regex{Regex: text}}
}

func lark(text string) *cladev1.Constraint {
	return &cladev1.Constraint{Grammar: &cladev1.Constraint_Lark{Lark: text}}
}

func choice(options ...string) *cladev1.Constraint {
	return &cladev1.Constraint{Grammar: &cladev1.Constraint_Choice{Choice: &cladev1.Choice{Options: options}}}
}

func jsonObject(compact bool) *cladev1.Constraint {
	return &cladev1.Constraint{Grammar: &cladev1.Constraint_JsonObject{JsonObject: true}, CompactWhitespace: &compact}
}

func TestEachKindOfGrammarTakesItsTextsAndNoOthers(t *testing.T) {
	w := newWords(common...)
	v := newTestVocabulary(t, w)
	for name, c := range map[string]struct {
		constraint *cladev1.Constraint
		yes, no    []string
	}{
		"schema": {
			schema(`{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name"],"additionalProperties":false}`),
			[]string{`{"name":"é"}`, `{"name": "x", "age": 10}`, "{\n  \"name\": \"\"\n}"},
			[]string{`{}`, `{"age":1}`, `{"name":1}`, `{"name":"x"`, `[]`},
		},
		"schema true": {schema(`true`), []string{`{}`, `[1,null]`, `"x"`}, []string{`x`, ``}},
		"object":      {jsonObject(false), []string{`{}`, `{"a":[1,{"b":null}]}`}, []string{`[]`, `1`, `{"a"}`}},
		"regex":       {regex(`[a-c]+\d{2}(/x)?`), []string{"a10", "abc00/x"}, []string{"", "a1", "d10", "a10/"}},
		"lark":        {lark("start: \"foo\" (\" \" WORD)*\nWORD: /[a-z]+/"), []string{"foo", "foo bar baz"}, []string{"bar", "foo "}},
		"choice":      {choice("yes", "no (never)", `a.b"\`, "日本"), []string{"yes", "no (never)", `a.b"\`, "日本"}, []string{"", "ye", "axb", "no"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := start(t, v, c.constraint)
			for _, text := range c.yes {
				require.True(t, takes(t, m, w, text), text)
			}
			for _, text := range c.no {
				require.False(t, takes(t, m, w, text), text)
			}
		})
	}
}

func TestEndIsAllowedOnlyWhereTheTextIsComplete(t *testing.T) {
	w := newWords(common...)
	m := start(t, newTestVocabulary(t, w), choice("foo", "foobar"))
	mask := make([]uint32, m.vocabulary.Words())
	ends := func() bool {
		require.NoError(t, m.Mask(mask))
		return mask[w.end()/32]>>(w.end()%32)&1 == 1
	}
	require.False(t, ends())
	require.NoError(t, m.Commit(w.ids["foo"]))
	require.True(t, ends())
	require.True(t, m.Accepting())
	require.False(t, m.Done())
	require.NoError(t, m.Commit(w.ids["bar"]))
	require.True(t, m.Done(), "nothing but the end can follow")
}

// A trap of others: their models loop on white space between two tokens.
func TestWhiteSpaceBetweenTokensIsBounded(t *testing.T) {
	w := newWords(common...)
	v := newTestVocabulary(t, w)
	loose, tight := start(t, v, jsonObject(false)), start(t, v, jsonObject(true))
	for text, want := range map[string][2]bool{
		`{"a":1}`:            {true, true},
		`{ "a": 1 }`:         {true, false},
		"{\n    \"a\": 1\n}": {true, false},
		"{  \"a\":1}":        {false, false},
		"{\n\n\"a\":1}":      {false, false},
		"{\n" + strings.Repeat(" ", 64) + "\"a\":1}": {true, false},
		"{\n" + strings.Repeat(" ", 65) + "\"a\":1}": {false, false},
	} {
		require.Equal(t, want[0], takes(t, loose, w, text), "%q", text)
		require.Equal(t, want[1], takes(t, tight, w, text), "compact: %q", text)
	}
}

func TestSpecialTokensAreNotTakenForTheirSpelling(t *testing.T) {
	w := newWords("<", "|", "end")
	m := start(t, newTestVocabulary(t, w), choice("<|end|>!"))
	mask := make([]uint32, m.vocabulary.Words())
	var ids []int32
	for !m.Done() {
		require.NoError(t, m.Mask(mask))
		require.Zero(t, mask[w.end()/32]>>(w.end()%32)&1)
		id := pick(mask, w, rand.New(rand.NewPCG(1, 1)), true)
		require.NoError(t, m.Commit(id))
		ids = append(ids, id)
	}
	require.Equal(t, "<|end|>!", w.text(ids))
}

func TestRollbackAndCloneGoOnFromTheirState(t *testing.T) {
	w := newWords(common...)
	m := start(t, newTestVocabulary(t, w), schema(`{"type":"array","items":{"enum":["foo","bar"]}}`))
	before, after := make([]uint32, m.vocabulary.Words()), make([]uint32, m.vocabulary.Words())
	require.NoError(t, m.Commit(w.ids["["]))
	require.NoError(t, m.Mask(before))
	copied, err := m.Clone()
	require.NoError(t, err)
	defer copied.Close()
	ids, err := w.Encode(`"foo"`, false)
	require.NoError(t, err)
	for _, id := range ids {
		require.NoError(t, m.Commit(id))
	}
	require.NoError(t, m.Mask(after))
	require.NotEqual(t, before, after)
	require.NoError(t, m.Rollback(len(ids)))
	require.NoError(t, m.Mask(after))
	require.Equal(t, before, after)
	require.NoError(t, copied.Mask(after))
	require.Equal(t, before, after)
}

// A text that a grammar ended can be taken back too: speculation proposes beyond the end.
func TestRollbackUndoesTheEnd(t *testing.T) {
	w := newWords(common...)
	m := start(t, newTestVocabulary(t, w), choice("foobar"))
	require.NoError(t, m.Commit(w.ids["foo"]))
	require.NoError(t, m.Commit(w.ids["bar"]))
	require.True(t, m.Done())
	require.NoError(t, m.Rollback(1))
	require.False(t, m.Done())
	require.NoError(t, m.Commit(w.ids["bar"]))
}

// After a resume the ids are committed again from the first one.
func TestStateFollowsFromTheIdsAlone(t *testing.T) {
	w := newWords(common...)
	v := newTestVocabulary(t, w)
	c := schema(`{"type":"object","properties":{"a":{"type":"array","items":{"type":"number"}}},"required":["a"]}`)
	first := start(t, v, c)
	ids, _ := wander(t, first, w, rand.New(rand.NewPCG(7, 7)), 12, 12)
	second := start(t, v, c)
	for _, id := range ids {
		require.NoError(t, second.Commit(id))
	}
	a, b := make([]uint32, v.Words()), make([]uint32, v.Words())
	require.NoError(t, first.Mask(a))
	require.NoError(t, second.Mask(b))
	require.Equal(t, a, b)
}

func TestForcedTokensAreSpelledAsTheTokenizerDoes(t *testing.T) {
	w := newWords("foo", "foobar", "bar", "baz", "ba")
	m := start(t, newTestVocabulary(t, w), regex(`foobarbaz[0-9]`))
	ids, err := m.Forced()
	require.NoError(t, err)
	require.Equal(t, []int32{w.ids["foobar"], w.ids["baz"]}, ids)
}

func TestUnsupportedKeywordIsAnErrorNamingItsPath(t *testing.T) {
	v := newTestVocabulary(t, newWords(common...))
	for name, c := range map[string]struct{ schema, path, says string }{
		"root":       {`{"not":{"type":"string"}}`, "#/not", "keyword not"},
		"property":   {`{"properties":{"a/b":{"items":{"uniqueItems":true}}}}`, "#/properties/a~1b/items/uniqueItems", "keyword uniqueItems"},
		"definition": {`{"$ref":"#/$defs/x","$defs":{"x":{"contains":{}},"y":{"not":{}}}}`, "#/$defs/x/contains", "keyword contains"},
		"branch":     {`{"anyOf":[{"type":"string"},{"if":{},"then":{}}]}`, "#/anyOf/1/if", "keyword if"},
		"format":     {`{"properties":{"a":{"type":"string","format":"telephone"}}}`, "#/properties/a", "Unknown format: telephone"},
		"one of":     {`{"properties":{"a":{"oneOf":[{"type":"string"},{"minLength":2}]}}}`, "#/properties/a", "oneOf"},
		"number":     {`{"enum":[1,12345678901234567891]}`, "#/enum/1", "beyond the numbers"},
		"draft":      {`{"$schema":"https://example.org/mine"}`, "#/$schema", "is not one of"},
		"count":      {`{"properties":{"a":{"type":"object","minProperties":2}}}`, "#/properties/a/minProperties", "names cannot come twice"},
		"character":  {`{"const":{"k":"a\u0001"}}`, "#/const/k", "U+0001"},
		"two items":  {`{"allOf":[{"items":[{}]}],"items":[{}],"additionalItems":{"type":"null"}}`, "#/additionalItems", "beside allOf"},
		"options":    {`{"x-guidance":{"lenient":true}}`, "#/x-guidance", "not a caller's"},
		"type":       {`{"items":{"type":"float"}}`, "#/items", "Invalid type"},
		"impossible": {`{"type":"object","properties":{"a":{"type":"integer","minimum":2,"maximum":1}},"required":["a"]}`, "#", "required property 'a' is unsatisfiable"},
		"impossible definition": {
			`{"$ref":"#/$defs/x","$defs":{"x":{"type":"object","required":["z"],"additionalProperties":false}}}`,
			"#/$defs/x", "required property 'z' is unsatisfiable",
		},
		"lookahead":   {`{"properties":{"a":{"type":"string","pattern":"a(?=b)"}}}`, "#/properties/a", "look-around"},
		"no schema":   {`{"items":3}`, "#", "schema must be"},
		"broken ref":  {`{"$ref":"#/$defs/gone"}`, "#", "gone"},
		"foreign ref": {`{"items":{"$ref":"https://example.org/x"}}`, "#/items", "example.org"},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := Read(schema(c.schema))
			if err == nil {
				var m *Matcher
				if m, err = v.Start(g); err == nil {
					m.Close()
				}
			}
			require.ErrorContains(t, err, c.says)
			var known *contract.Error
			require.ErrorAs(t, err, &known)
			require.Equal(t, "constraint.json_schema"+c.path, known.Subject, err)
			require.Contains(t, []contract.Kind{contract.UnsupportedOption, contract.InvalidArgument}, known.Kind)
			require.NotContains(t, known.Message, "\n")
		})
	}
}

func TestWhatIsNoGrammarIsRefused(t *testing.T) {
	v := newTestVocabulary(t, newWords(common...))
	on := true
	for name, c := range map[string]struct {
		constraint    *cladev1.Constraint
		subject, says string
	}{
		"none":          {&cladev1.Constraint{}, "constraint", "names no grammar"},
		"no object":     {&cladev1.Constraint{Grammar: &cladev1.Constraint_JsonObject{}}, "constraint.json_object", "no grammar"},
		"not JSON":      {schema(`{"a":`), "constraint.json_schema", "not JSON"},
		"two values":    {schema(`{} {}`), "constraint.json_schema", "follows"},
		"false":         {schema(`false`), "constraint.json_schema", "no value"},
		"a list":        {schema(`[]`), "constraint.json_schema", "is an object"},
		"deep":          {schema(strings.Repeat(`{"items":`, 200) + `{}` + strings.Repeat(`}`, 200)), "constraint.json_schema", "nested deeper"},
		"regex":         {regex(`a(b`), "constraint.regex", "unclosed group"},
		"empty regex":   {regex(``), "constraint.regex", "is empty"},
		"cut regex":     {regex(`abc\`), "constraint.regex", "within an escape"},
		"deep regex":    {regex(strings.Repeat("(", 200) + strings.Repeat(")", 200)), "constraint.regex", "nested deeper"},
		"lark":          {lark("start: nowhere"), "constraint.lark", "nowhere"},
		"zero byte":     {lark("start: \"\x00\""), "constraint.lark", "zero byte"},
		"no choice":     {choice(), "constraint.choice", "want 1 to"},
		"empty choice":  {choice("a", ""), "constraint.choice[1]", "is empty"},
		"compact regex": {&cladev1.Constraint{Grammar: regex("a").Grammar, CompactWhitespace: &on}, "constraint.compact_whitespace", "JSON only"},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := Read(c.constraint)
			if err == nil {
				var m *Matcher
				if m, err = v.Start(g); err == nil {
					m.Close()
				}
			}
			require.ErrorContains(t, err, c.says)
			var known *contract.Error
			require.ErrorAs(t, err, &known)
			require.Equal(t, c.subject, known.Subject)
		})
	}
}

func TestTokenOutsideTheMaskIsAnErrorAndTheMatcherStaysBroken(t *testing.T) {
	w := newWords(common...)
	m := start(t, newTestVocabulary(t, w), choice("foo"))
	err := m.Commit(w.ids["bar"])
	require.ErrorContains(t, err, "the grammar cannot be followed")
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
	require.Error(t, m.Commit(w.ids["foo"]))
	require.False(t, m.Done(), "broken is not done")
}

func TestVocabularyInUseIsNotFreed(t *testing.T) {
	w := newWords()
	v, err := library.Vocabulary(w, len(w.pieces), []int32{w.end()})
	require.NoError(t, err)
	g, err := Read(choice("a"))
	require.NoError(t, err)
	m, err := v.Start(g)
	require.NoError(t, err)
	require.ErrorContains(t, v.Close(), "1 matchers are still open")
	m.Close()
	m.Close()
	require.NoError(t, v.Close())
}

func TestModelWithoutAnEndIsRefused(t *testing.T) {
	w := newWords()
	_, err := library.Vocabulary(w, len(w.pieces), []int32{-1, int32(len(w.pieces))})
	require.ErrorContains(t, err, "names no token that ends a text")
}

func TestLibraryThatDoesNotFitIsRefused(t *testing.T) {
	again, err := Open(libraryPath())
	require.NoError(t, err)
	require.Same(t, library, again)
	_, err = Open("/nowhere/libguidance.so")
	require.ErrorContains(t, err, "has already loaded")
}

// Parsers recurse over a caller's text; a stack that overflows would end the process.
func TestDeepGrammarsDoNotEndTheProcess(t *testing.T) {
	v := newTestVocabulary(t, newWords(common...))
	var chain, rules, terminals strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&chain, `"d%d":{"properties":{"a":{"$ref":"#/$defs/d%d"}}},`, i, i+1)
		fmt.Fprintf(&rules, "r%d: \"a\" r%d\n", i, i+1)
		fmt.Fprintf(&terminals, "T%d: \"a\" T%d\n", i, i+1)
	}
	for name, c := range map[string]*cladev1.Constraint{
		"references": schema(`{"$ref":"#/$defs/d0","$defs":{` + chain.String() + `"d3000":{}}}`),
		"rules":      lark("start: r0\n" + rules.String() + "r3000: \"b\""),
		"terminals":  lark("start: T0\n" + terminals.String() + "T3000: \"b\""),
		"operators":  lark("start: A\nA: " + strings.Repeat("/a+/ & ", 10000) + `"a"`),
		"optionals":  lark("start: " + strings.Repeat(`"a"? `, 3000)),
		"repeats":    regex("a{1000}{1000}"),
	} {
		t.Run(name, func(t *testing.T) {
			g, err := Read(c)
			require.NoError(t, err)
			m, err := v.Start(g)
			if err != nil {
				require.Contains(t, []contract.Kind{contract.InvalidArgument, contract.UnsupportedOption}, contract.KindOf(err), err)
				return
			}
			defer m.Close()
			mask := make([]uint32, v.Words())
			for range 3 {
				if err := m.Mask(mask); err != nil {
					require.Equal(t, contract.InvalidArgument, contract.KindOf(err), err)
					return
				}
			}
		})
	}
}

// A second spelling of a property's name would be taken for an additional property, whose last value wins.
func TestNameHasOneSpelling(t *testing.T) {
	w := newWords(common...)
	v := newTestVocabulary(t, w)
	m := start(t, v, schema(`{"type":"object","properties":{"a":{"type":"integer"},"\n":{"type":"integer"}},"required":["a"]}`))
	for text, want := range map[string]bool{
		`{"a":1,"b":"x"}`: true, `{"a":1,"\n":2}`: true, `{"a":1,"a":"x"}`: false, `{"a":1,"\u0061":"x"}`: false, `{"a":1,"\u000a":"x"}`: false, `{"a":1,"\n":"x"}`: false,
	} {
		require.Equal(t, want, takes(t, m, w, text), text)
	}
}

func TestPropertiesAreCountedWhereNamesCannotComeTwice(t *testing.T) {
	w := newWords(common...)
	v := newTestVocabulary(t, w)
	m := start(t, v, schema(`{"type":"object","properties":{"a":true,"b":true,"id":true},"required":["a","b"],"minProperties":2}`))
	require.True(t, takes(t, m, w, `{"a":1,"b":2}`))
	require.False(t, takes(t, m, w, `{"a":1,"a":2}`))
}

// The grammar that core/loader writes for a call that is forced.
func TestSchemaWithinALarkGrammarStandsBetweenItsMarkers(t *testing.T) {
	w := newWords(common...)
	v := newTestVocabulary(t, w)
	const call = `call: %json {"x-guidance":{"whitespace_flexible":false,"json_allowed_escapes":"nrbtf\\\""},"type":"object","properties":{"name":{"const":"f"},` +
		`"arguments":{"type":"object"}},"required":["name","arguments"],"additionalProperties":false}`
	m := start(t, v, lark("start: \"\\u003cc\\u003e\" \"\\n\" call \"\\n\" \"</c>\"\n"+call+"\n"))
	require.True(t, takes(t, m, w, "<c>\n{\"name\":\"f\",\"arguments\":{\"a\":[1,\"x\"]}}\n</c>"))
	require.False(t, takes(t, m, w, "<c>\n{\"name\": \"f\",\"arguments\":{}}\n</c>"))
	require.False(t, takes(t, m, w, "<c>\n{\"name\":\"g\",\"arguments\":{}}\n</c>"))

	w2 := newWords(append([]string{}, common...)...)
	m = start(t, v, lark(fmt.Sprintf("start: <[%d]> call\n%s\n", w2.ids["日本"], call)))
	require.NoError(t, m.Commit(w2.ids["日本"]))
	require.True(t, takes(t, m, w2, `{"name":"f","arguments":{}}`))
}

// The grammars that core/loader writes for answers in which calls of strict functions follow their schemas and all else is free.
func TestTextIsFreeAroundCallsThatFollowTheirSchema(t *testing.T) {
	const call = "\ncall: %json {\"x-guidance\":{\"whitespace_flexible\":false},\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"f\"}," +
		"\"arguments\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],\"additionalProperties\":false}}," +
		"\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}\n"
	const good, bad = `{"name":"f","arguments":{"a":1}}`, `{"name":"f","arguments":{"a":"x"}}`
	const free = `FREE: /(?s:.+)/ & ~/(?s:.*)<c>(?s:.*)/ & ~/\s*\{(?s:.*)/`
	w := newWords(common...)
	v := newTestVocabulary(t, w)
	m := start(t, v, lark("start: (head call \"\\n\" \"</c>\")* FREE?\nhead[lazy]: /(?s:.*)<c>\\n/\n"+free+call))
	for text, want := range map[string]bool{
		"": true, "plain text": true, "a < b <d> </c>": true, "two\nlines": true,
		"<c>\n" + good + "\n</c>":                              true,
		"Let me look.\n<c>\n" + good + "\n</c>":                true,
		"<c>\n" + good + "\n</c> and <c>\n" + good + "\n</c>.": true,
		"<c>\n" + bad + "\n</c>":                               false,
		"text <c>\n" + bad + "\n</c>":                          false,
		"<c>\n" + good + "\n</c><c>\n" + bad + "\n</c>":        false,
		"text <c> which is none":                               false,
		good:                                                   false,
	} {
		require.Equal(t, want, takes(t, m, w, text), "%q", text)
	}

	m = start(t, v, lark("start: call | FREE\nFREE: /(?s:.+)/ & ~/\\s*\\{(?s:.*)/"+call))
	for text, want := range map[string]bool{"plain { text": true, good: true, bad: false, " " + bad: false, good + "x": false} {
		require.Equal(t, want, takes(t, m, w, text), "%q", text)
	}
}
