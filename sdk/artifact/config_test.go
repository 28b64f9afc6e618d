package artifact

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestConfigKeepsNumbersExact(t *testing.T) {
	c, err := ParseConfig("config.json", []byte(`{"i":9007199254740993,"f":30.0,"e":1e6,"neg":-0,"big":1000000000000000019884624838656,
		"nan":NaN,"inf":Infinity,"ninf":-Infinity,"tag":{"__float__":"Infinity"},"n":null,"s":"\u00e9\ud83d\ude00\n","l":[1,[2.5]],"o":{"x":{"y":7}}}`))
	require.NoError(t, err)
	for path, want := range map[string]any{
		"i": int64(9007199254740993), "f": 30.0, "e": 1e6, "neg": int64(0), "big": 1e30, "inf": math.Inf(1),
		"ninf": math.Inf(-1), "tag": math.Inf(1), "n": nil, "s": "é😀\n", "o.x.y": int64(7), "l.1.0": 2.5,
	} {
		got, ok := c.Lookup(path)
		require.True(t, ok, path)
		require.Equal(t, want, got, path)
	}
	nan, _ := c.Lookup("nan")
	require.True(t, math.IsNaN(nan.(float64)))
	for _, missing := range []string{"x", "o.y", "o.x.y.z", "l.2", "l.x", "s.0"} {
		_, ok := c.Lookup(missing)
		require.False(t, ok, missing)
	}
}

func TestConfigRoundTripsThroughJSON(t *testing.T) {
	c, err := ParseConfig("config.json", []byte(`{"b":30.0,"a":[1,2.5,{"__float__":"NaN"}],"c":{"d":-Infinity,"e":"\"\u2028<"}}`))
	require.NoError(t, err)
	text, err := c.MarshalJSON()
	require.NoError(t, err)
	again, err := ParseConfig("config.json", text)
	require.NoError(t, err)
	second, err := again.MarshalJSON()
	require.NoError(t, err)
	require.Equal(t, string(text), string(second))
	require.Contains(t, string(text), `"b":30.0`)
	require.Contains(t, string(text), `{"__float__":"NaN"}`)

	var into struct{ B float64 }
	require.NoError(t, c.Decode(&into))
	require.Equal(t, 30.0, into.B)
	empty, err := Config{}.MarshalJSON()
	require.NoError(t, err)
	require.Equal(t, "{}", string(empty))
}

func TestConfigRefusesWhatIsNotStrictJSON(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":             ``,
		"not an object":       `[1]`,
		"trailing text":       `{} {}`,
		"trailing comma":      `{"a":1,}`,
		"list trailing comma": `{"a":[1,]}`,
		"duplicate key":       `{"a":1,"a":2}`,
		"nested duplicate":    `{"x":{"a":1,"\u0061":2}}`,
		"single quotes":       `{'a':1}`,
		"comment":             `{"a":1 /* no */}`,
		"leading zero":        `{"a":01}`,
		"plus":                `{"a":+1}`,
		"bare point":          `{"a":1.}`,
		"empty exponent":      `{"a":1e}`,
		"overflow":            `{"a":1e999}`,
		"nan in another case": `{"a":nan}`,
		"control character":   "{\"a\":\"\x01\"}",
		"unknown escape":      `{"a":"\q"}`,
		"lone surrogate":      `{"a":"\ud800"}`,
		"wrong pair":          `{"a":"\ud800\u0041"}`,
		"short escape":        `{"a":"\u12"}`,
		"bad UTF-8":           "{\"a\":\"\xff\"}",
		"bad UTF-8 escaped":   "{\"a\":\"\\n\xff\"}",
		"byte order mark":     "\ufeff{}",
		"open string":         `{"a":"b`,
		"open string escaped": `{"a":"b\`,
		"deep":                strings.Repeat(`{"a":`, 100),
		"wrong tag":           `{"a":{"__float__":"lots"}}`,
		"tag without text":    `{"a":{"__float__":1}}`,
		"too many values":     `{"a":[` + strings.Repeat("0,", jsonValues) + `0]}`,
		"too large":           `{"a":"` + strings.Repeat("x", configLimit) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseConfig("config.json", []byte(text))
			requireCorrupt(t, err, "config.json")
		})
	}
}

func TestConfigGettersNameFileAndField(t *testing.T) {
	c, err := ParseConfig("config.json", []byte(`{"i":1,"f":1.5,"s":"x","b":true,"n":null,"l":[1,2],"m":[1,"2"],"t":["a"]}`))
	require.NoError(t, err)

	i, ok, err := c.Int("i")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, int64(1), i)
	f, ok, err := c.Float("i")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 1.0, f)
	ids, _, err := c.Ints("i")
	require.NoError(t, err)
	require.Equal(t, []int64{1}, ids)
	words, _, err := c.Strings("t")
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, words)

	for _, path := range []string{"n", "missing"} {
		_, ok, err := c.Int(path)
		require.NoError(t, err)
		require.False(t, ok, "null and missing are both absent")
	}
	for path, get := range map[string]func(string) error{
		"f": func(p string) error { _, _, err := c.Int(p); return err },
		"s": func(p string) error { _, _, err := c.Float(p); return err },
		"i": func(p string) error { _, _, err := c.String(p); return err },
		"l": func(p string) error { _, _, err := c.Bool(p); return err },
		"m": func(p string) error { _, _, err := c.Ints(p); return err },
		"b": func(p string) error { _, _, err := c.Strings(p); return err },
	} {
		err := get(path)
		require.Error(t, err, path)
		require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
		require.Contains(t, err.Error(), "config.json: "+path)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.5,{"__float__":"NaN"}],"b":{"c":-Infinity}}`))
	f.Add([]byte(`{"a":"\ud83d\ude00\u0000","a":1e-7}`))
	f.Add([]byte(strings.Repeat("[", 70)))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig("config.json", data)
		if err != nil {
			if contract.KindOf(err) != contract.ArtifactCorrupt {
				t.Fatalf("not ArtifactCorrupt: %v", err)
			}
			return
		}
		text, err := c.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseConfig("config.json", text)
		if err != nil {
			t.Fatalf("own text refused: %v\n%s", err, text)
		}
		second, err := again.MarshalJSON()
		if err != nil || string(second) != string(text) {
			t.Fatalf("not stable: %s and %s, %v", text, second, err)
		}
	})
}
