package family

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// firstParty reads the five manifests of this repository.
func firstParty(t testing.TB) map[string]*Manifest {
	t.Helper()
	paths, err := filepath.Glob("../../plugins/*/plugin.yaml")
	require.NoError(t, err)
	require.Len(t, paths, 5)
	out := map[string]*Manifest{}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		require.NoError(t, err)
		m, err := ParseManifest(data)
		require.NoError(t, err, p)
		require.Equal(t, filepath.Base(filepath.Dir(p)), m.Name)
		out[m.Name] = m
	}
	return out
}

// record finds a first-party record by graph id.
func recordOf(t testing.TB, graph string) *Record {
	t.Helper()
	for _, m := range firstParty(t) {
		for _, r := range m.Families {
			if r.Graph == graph {
				return r
			}
		}
	}
	t.Fatalf("no record %s", graph)
	return nil
}

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(JSONSchema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	require.NoError(t, c.AddResource("plugin.schema.json", doc))
	s, err := c.Compile("plugin.schema.json")
	require.NoError(t, err)
	return s
}

func TestManifestsMeetThePublishedSchema(t *testing.T) {
	schema := compiledSchema(t)
	for name, m := range firstParty(t) {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(m.JSON()))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(doc), name)
	}
}

// The schema and the Go types say the same thing: the same keys everywhere, the same closed lists.
func TestSchemaAndTypesDoNotDrift(t *testing.T) {
	var schema struct {
		Properties map[string]json.RawMessage
		Defs       map[string]struct {
			Properties map[string]json.RawMessage
		} `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(JSONSchema, &schema))
	keys := func(m map[string]json.RawMessage) []string { return slices.Sorted(maps.Keys(m)) }
	require.Equal(t, yamlKeys(reflect.TypeFor[Manifest]()), keys(schema.Properties))
	for def, typ := range map[string]reflect.Type{
		"record": reflect.TypeFor[Record](), "clause": reflect.TypeFor[Clause](), "require": reflect.TypeFor[Require](),
		"dialect": reflect.TypeFor[Dialect](), "rule": reflect.TypeFor[Rule](), "pair": reflect.TypeFor[Pair](),
		"media": reflect.TypeFor[MediaTokens](), "profile": reflect.TypeFor[Profile](),
		"implementation": reflect.TypeFor[Implementation](), "graph_key": reflect.TypeFor[GraphKey](),
	} {
		require.Equal(t, yamlKeys(typ), keys(schema.Defs[def].Properties), def)
	}
	for prop, typ := range map[string]reflect.Type{
		"moe": reflect.TypeFor[MoE](), "training": reflect.TypeFor[Training](), "embedding": reflect.TypeFor[Embedding](),
		"sentinels": reflect.TypeFor[Sentinels](), "media": reflect.TypeFor[Media](),
		"generation": reflect.TypeFor[Generation](), "composition": reflect.TypeFor[Composition](),
	} {
		var sub struct{ Properties map[string]json.RawMessage }
		require.NoError(t, json.Unmarshal(schema.Defs["record"].Properties[prop], &sub))
		require.Equal(t, yamlKeys(typ), keys(sub.Properties), prop)
	}
	enum := func(def, prop string) []string {
		var sub struct{ Enum []string }
		require.NoError(t, json.Unmarshal(schema.Defs[def].Properties[prop], &sub))
		slices.Sort(sub.Enum)
		return sub.Enum
	}
	var names []string
	for op := range ops {
		names = append(names, string(op))
	}
	slices.Sort(names)
	require.Equal(t, names, enum("clause", "op"))
	require.Equal(t, names, enum("require", "op"))
	require.Equal(t, slices.Sorted(maps.Keys(rules)), enum("rule", "rule"))
}

// yamlKeys lists the keys of a struct and checks that JSON spells them the same.
func yamlKeys(typ reflect.Type) []string {
	var out []string
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			out = append(out, yamlKeys(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if other, _, _ := strings.Cut(f.Tag.Get("json"), ","); other != name {
			name = "json and yaml tags differ: " + f.Name
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func TestCanonicalJSONIsStable(t *testing.T) {
	for name, m := range firstParty(t) {
		again, err := ParseManifest([]byte(m.JSON()))
		require.NoError(t, err, name)
		require.Equal(t, m.JSON(), again.JSON(), name)
	}
}

const minimal = `
schema: 1
name: x
version: 0.1.0
contract: [1]
families:
  - graph: example.org/x
    label: x
    tier: targeted
    status: available
    model_types: [x]
    accepts: [{path: model_type, op: eq, value: x}]
    config: {}
    loaders: [safetensors]
    loop: autoregressive
    fidelity: l3-measured
    specialization: dedicated
    profile: x-dedicated
    capabilities: [x-graph]
    fingerprint: config
`

func TestManifestRefusesWhatTheSchemaDoesNotKnow(t *testing.T) {
	_, err := ParseManifest([]byte(minimal))
	require.NoError(t, err)
	replace := func(old, with string) string {
		require.Contains(t, minimal, old)
		return strings.Replace(minimal, old, with, 1)
	}
	schema := compiledSchema(t)
	for name, c := range map[string]struct {
		text, mention string
		goOnly        bool // the rule needs more than a schema can say
	}{
		"nothing":                    {"", "is empty", true},
		"two documents":              {minimal + "---\n" + minimal, "more than one document", true},
		"unknown top key":            {minimal + "extra: 1\n", "extra", false},
		"unknown record key":         {replace("label: x", "label: x\n    flavour: y"), "flavour", false},
		"unknown clause key":         {replace("value: x}", "value: x, why: y}"), "why", false},
		"key twice":                  {replace("label: x", "label: x\n    label: y"), "label", true},
		"another schema":             {replace("schema: 1", "schema: 2"), "schema 2", false},
		"no name":                    {replace("name: x", "name: ''"), "name", false},
		"name with a slash":          {replace("name: x", "name: ../x"), "name", false},
		"version":                    {replace("0.1.0", "one"), "version", false},
		"no families":                {minimal[:strings.Index(minimal, "families")] + "families: []\n", "families", false},
		"graph id":                   {replace("example.org/x", "Example Org"), "graph", false},
		"graph id with two slashes":  {replace("example.org/x", "a/b/c"), "graph", false},
		"tier":                       {replace("tier: targeted", "tier: best"), "tier", false},
		"announced without version":  {replace("status: available", "status: announced"), "since", false},
		"available with version":     {replace("status: available", "status: available\n    since: 0.2.0"), "since", false},
		"no accepts":                 {replace("[{path: model_type, op: eq, value: x}]", "[]"), "accepts", false},
		"unknown op":                 {replace("op: eq", "op: like"), "like", false},
		"op without value":           {replace("op: eq, value: x", "op: eq"), "needs a value", false},
		"op with value and other":    {replace("value: x}", "value: x, other: y}"), "needs a value", false},
		"exists with value":          {replace("op: eq", "op: exists"), "takes no value", false},
		"in without list":            {replace("op: eq", "op: in"), "cannot compare", true},
		"unknown type":               {replace("op: eq", "op: type"), "type x is unknown", true},
		"unknown loader":             {replace("[safetensors]", "[pickle]"), "pickle", false},
		"loader twice":               {replace("[safetensors]", "[gguf, gguf]"), "twice", false},
		"transcribes and talks":      {replace("label: x", "label: x\n    transcribes: true"), "transcribes", true},
		"no temperature":             {replace("config: {}", "config: {}\n    generation: {temperature: -1}"), "generation.temperature: -1", false},
		"a top_p that keeps nothing": {replace("config: {}", "config: {}\n    generation: {top_p: 0}"), "generation.top_p: 0", false},
		"unknown rule":               {replace("config: {}", "config: {derive: [{rule: guess, to: a}]}"), "guess", false},
		"rule without its fields":    {replace("config: {}", "config: {derive: [{rule: divide, to: a}]}"), "paths", false},
		"divide by three":            {replace("config: {}", "config: {derive: [{rule: divide, to: a, paths: [a, b, c]}]}"), "number of paths", true},
		"require without message":    {replace("config: {}", "config: {require: [{path: a, op: exists}]}"), "message", false},
		"a value JSON cannot write":  {replace("config: {}", "config: {defaults: {a: .nan}}"), "JSON", true},
		"fields without their names": {replace("fingerprint: config", "fingerprint: fields"), "fingerprint_fields", false},
		"too large":                  {minimal + "#" + strings.Repeat("x", manifestLimit), "limit", true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseManifest([]byte(c.text))
			require.ErrorContains(t, err, c.mention)
			require.ErrorContains(t, err, "plugin.yaml")
			if !c.goOnly {
				require.Error(t, schema.Validate(asJSON(t, c.text)), "the schema refuses it too")
			}
		})
	}
	require.NoError(t, schema.Validate(asJSON(t, minimal)))
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte(`{"schema":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseManifest(data)
		if err != nil {
			return
		}
		again, err := ParseManifest([]byte(m.JSON()))
		if err != nil {
			t.Fatalf("own JSON refused: %v\n%s", err, m.JSON())
		}
		if again.JSON() != m.JSON() {
			t.Fatalf("not stable:\n%s\n%s", m.JSON(), again.JSON())
		}
	})
}
