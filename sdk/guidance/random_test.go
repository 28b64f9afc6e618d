package guidance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

// author writes random schemas of the keywords that llguidance has.
type author struct {
	*rand.Rand
	defs int // how many definitions can be referred to
}

func (a author) one(options ...string) string { return options[a.IntN(len(options))] }
func (a author) coin() bool                   { return a.IntN(2) == 0 }

func (a author) document() string {
	a.defs = a.IntN(3)
	body := a.schema(3)
	var defs []string
	for i := range a.defs {
		inner := a
		inner.defs = i // a definition refers to earlier ones only, so that every text can end
		defs = append(defs, fmt.Sprintf(`"d%d":%s`, i, inner.schema(2)))
	}
	if len(defs) > 0 {
		body = strings.TrimSuffix(body, "}") + `,"$defs":{` + strings.Join(defs, ",") + "}}"
	}
	return body
}

// schema is an object text, never empty.
func (a author) schema(depth int) string {
	if a.defs > 0 && a.IntN(6) == 0 {
		return fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, a.IntN(a.defs))
	}
	if depth > 0 {
		switch a.IntN(8) {
		case 0, 1, 2:
			return a.object(depth)
		case 3, 4:
			return a.array(depth)
		case 5:
			return fmt.Sprintf(`{"anyOf":[%s,%s]}`, a.schema(depth-1), a.schema(depth-1))
		case 6:
			return fmt.Sprintf(`{"allOf":[%s,{"type":"object","required":["z"]}]}`, a.object(depth-1))
		}
	}
	switch a.IntN(6) {
	case 0:
		return a.number()
	case 1:
		return a.one(`{"type":"boolean"}`, `{"type":"null"}`, `{"type":["string","null"]}`, `{"title":"any"}`)
	case 2:
		return a.one(`{"enum":["a","b c",1,null,[1,{"x":true}]]}`, `{"const":{"k":["v",2.5]}}`, `{"const":"\u00e9\"\\"}`, `{"enum":[1.5,-3]}`)
	}
	return a.text()
}

func (a author) text() string {
	switch a.IntN(4) {
	case 0:
		least := a.IntN(4)
		return fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, least, least+a.IntN(9))
	case 1:
		return fmt.Sprintf(`{"type":"string","pattern":%q}`, a.one(`^[a-z]{2,5}$`, `^\d+-\d{2}$`, `^(foo|bar)+$`, `^[^"\\]*$`, `^$`, `^\w+@\w+\.com$`))
	case 2:
		return fmt.Sprintf(`{"type":"string","format":%q}`, a.one("date", "uuid", "ipv4", "time", "email", "hostname"))
	}
	return `{"type":"string"}`
}

func (a author) number() string {
	least := a.IntN(200) - 100
	switch a.IntN(5) {
	case 0:
		return fmt.Sprintf(`{"type":"integer","minimum":%d,"maximum":%d}`, least, least+a.IntN(50))
	case 1:
		return fmt.Sprintf(`{"type":"number","exclusiveMinimum":%d.5,"maximum":%d.25}`, least, least+1+a.IntN(50))
	case 2:
		return fmt.Sprintf(`{"type":"integer","multipleOf":%d}`, 1+a.IntN(12))
	case 3:
		return fmt.Sprintf(`{"type":"integer","exclusiveMinimum":%d}`, least)
	}
	return fmt.Sprintf(`{"type":%q}`, a.one("integer", "number"))
}

func (a author) array(depth int) string {
	least := a.IntN(3)
	out := fmt.Sprintf(`{"type":"array","minItems":%d,"maxItems":%d`, least, least+a.IntN(4))
	if a.coin() {
		out += fmt.Sprintf(`,"prefixItems":[%s,%s]`, a.schema(depth-1), a.schema(depth-1))
	}
	return out + `,"items":` + a.schema(depth-1) + "}"
}

func (a author) object(depth int) string {
	names := []string{"a", "name", "b\\\"q", "é", "id"}
	a.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var properties, required []string
	for _, name := range names[:1+a.IntN(4)] {
		properties = append(properties, fmt.Sprintf(`"%s":%s`, name, a.schema(max(depth-1, 0))))
		if a.coin() {
			required = append(required, `"`+name+`"`)
		}
	}
	out := fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s]`, strings.Join(properties, ","), strings.Join(required, ","))
	switch a.IntN(4) {
	case 0:
		out += `,"additionalProperties":false`
	case 1:
		out += `,"additionalProperties":` + a.schema(0)
	case 2:
		out += fmt.Sprintf(`,"patternProperties":{"^x-":%s},"additionalProperties":false`, a.schema(0))
	}
	return out + "}"
}

// loose are the formats that llguidance takes more of than the RFCs do (docs/guidance.md).
var loose = regexp.MustCompile(`"(date|time|email|hostname)"`)

// Three hundred schemas at random, beside those that are refused by name: every text sampled under it is valid for an independent validator.
func TestEverySampledTextIsValidUnderItsRandomSchema(t *testing.T) {
	const schemas, each = 300, 5
	w := newWords(common...)
	v := newTestVocabulary(t, w)
	var compiled, refused, texts int
	for n := uint64(0); compiled < schemas; n++ {
		text := author{Rand: rand.New(rand.NewPCG(n, 42))}.document()
		g, err := Read(schema(text))
		require.NoError(t, err, text)
		m, err := v.Start(g)
		if err != nil {
			var known *contract.Error
			refused++
			require.True(t, errors.As(err, &known) && strings.HasPrefix(known.Subject, schemaSubject), "%s: %v", text, err)
			t.Log(err)
			continue
		}
		compiled++
		s, err := validator(t, text)
		require.NoError(t, err, text)
		s2, err := validatorOfFormats(t, text)
		require.NoError(t, err, text)
		for i := range uint64(each) {
			c, err := m.Clone()
			require.NoError(t, err)
			ids, ended := wander(t, c, w, rand.New(rand.NewPCG(n, i)), int(6*i), 1500)
			c.Close()
			if !ended {
				continue
			}
			texts++
			got := w.text(ids)
			require.NoError(t, validate(t, s, got), "schema: %s\nsampled: %s", text, got)
			if !loose.MatchString(text) {
				require.NoError(t, validate(t, s2, got), "with formats: schema: %s\nsampled: %s", text, got)
			}
		}
		m.Close()
	}
	t.Logf("%d schemas compiled, %d refused, %d texts", compiled, refused, texts)
	require.Less(t, refused, schemas/4)
	require.Greater(t, texts, compiled*each*8/10)
}
