package guidance

import (
	"math/rand/v2"
	"testing"

	"github.com/clademl/clade/sdk/contract"
)

// A caller's grammar is compiled by native code: whatever it is, it compiles or is refused, and
// its masks are there or an error; the process lives.
func FuzzGrammarIsTakenOrRefused(f *testing.F) {
	for _, seed := range []struct {
		kind byte
		text string
	}{
		{0, `{"type":"object","properties":{"a":{"$ref":"#"}}}`},
		{0, `{"anyOf":[{"const":1},{"enum":["x",[null]]}],"minLength":3}`},
		{0, `{"patternProperties":{"^a":{}},"additionalProperties":false,"minProperties":2}`},
		{0, `{"type":"string","pattern":"(a|b)*c{2,3}[^x]","format":"date"}`},
		{0, `{"type":"number","multipleOf":0.01,"minimum":-1e300,"maximum":1e300}`},
		{1, `(a|b)*c{2,3}[^x]\d+`},
		{1, `a{1000}{1000}`},
		{2, "start: a+ \"x\"\na: /[0-9]/ | b\nb: %json {\"type\":\"null\"}"},
		{2, "start: <|end|> | start start\n%ignore / +/"},
		{2, "start: A & ~B\nA: /a+/\nB: \"aa\"{2,5}"},
	} {
		f.Add(seed.kind, seed.text)
	}
	w := newWords(common...)
	v, err := library.Vocabulary(w, len(w.pieces), []int32{w.end()})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, kind byte, text string) {
		c := schema(text)
		switch kind % 3 {
		case 1:
			c = regex(text)
		case 2:
			c = lark(text)
		}
		g, err := Read(c)
		var m *Matcher
		if err == nil {
			m, err = v.Start(g)
		}
		if err != nil {
			if k := contract.KindOf(err); k != contract.InvalidArgument && k != contract.UnsupportedOption {
				t.Fatalf("%v: %v", k, err)
			}
			return
		}
		defer m.Close()
		mask, rng := make([]uint32, v.Words()), rand.New(rand.NewPCG(1, uint64(kind)))
		for n := 0; n < 24 && !m.Done(); n++ {
			if m.Mask(mask) != nil {
				return
			}
			if m.Commit(pick(mask, w, rng, n < 16)) != nil { // a limit of the parser
				return
			}
		}
	})
}
