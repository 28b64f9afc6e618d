package family

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

// asJSON turns YAML text into what a schema validator takes.
func asJSON(t *testing.T, text string) any {
	t.Helper()
	var doc any
	require.NoError(t, yaml.Unmarshal([]byte(text), &doc))
	data, err := json.Marshal(doc)
	require.NoError(t, err)
	var out any
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	require.NoError(t, d.Decode(&out))
	return out
}

func config(t testing.TB, text string) artifact.Config {
	t.Helper()
	c, err := artifact.ParseConfig("config.json", []byte(text))
	require.NoError(t, err)
	return c
}

const miniCPM5 = `{"model_type":"llama","hidden_size":1536,"num_hidden_layers":24,"num_attention_heads":16,
	"num_key_value_heads":2,"head_dim":128,"vocab_size":130560,"tie_word_embeddings":false,"intermediate_size":4608,
	"rms_norm_eps":1e-6,"rope_theta":5000000.0,"max_position_embeddings":131072,"eos_token_id":[1,130073]}`

func TestANearMissIsToldInWords(t *testing.T) {
	r := recordOf(t, "minicpm5")
	require.True(t, r.Match(config(t, miniCPM5)).OK)
	for old, c := range map[string]struct{ with, want string }{
		`"hidden_size":1536`:           {`"hidden_size":1537`, "minicpm5 wants hidden_size 1536, this has 1537"},
		`"num_hidden_layers":24`:       {`"num_hidden_layers":25`, "minicpm5 wants num_hidden_layers 24, this has 25"},
		`"num_attention_heads":16`:     {`"num_attention_heads":15`, "minicpm5 wants num_attention_heads 16, this has 15"},
		`"num_key_value_heads":2`:      {`"num_key_value_heads":1`, "minicpm5 wants num_key_value_heads 2, this has 1"},
		`"head_dim":128`:               {`"head_dim":127`, "minicpm5 wants head_dim 128, this has 127"},
		`"vocab_size":130560`:          {`"vocab_size":130561`, "minicpm5 wants vocab_size 130560, this has 130561"},
		`"tie_word_embeddings":false`:  {`"tie_word_embeddings":true`, "minicpm5 wants tie_word_embeddings false, this has true"},
		`"vocab_size":130560,`:         {``, "minicpm5 wants vocab_size 130560, this has none"},
		`"hidden_size":1536,"num_hid`:  {`"hidden_size":"1536","num_hid`, "minicpm5 wants hidden_size 1536, this has 1536"},
		`"num_hidden_layers":24,"num_`: {`"num_hidden_layers":[24],"num_`, "minicpm5 wants num_hidden_layers 24, this has 24"},
	} {
		require.Contains(t, miniCPM5, old)
		m := r.Match(config(t, strings.Replace(miniCPM5, old, c.with, 1)))
		require.False(t, m.OK, c.with)
		require.True(t, m.Type)
		require.Equal(t, []string{c.want}, m.Failed)
	}
	require.False(t, r.MatchType("llama"), "the type alone is not enough")
}

func TestClausesDecideAndReadAsTheyShould(t *testing.T) {
	c := config(t, `{"n":3,"f":2.5,"s":"gemma4_text","b":true,"l":["a","b"],"o":{"x":1},"nul":null,"list":[1,2,3]}`)
	v := view{canon: c, raw: c, generation: config(t, `{"g":1}`)}
	for _, row := range []struct {
		clause Clause
		holds  bool
		words  string
	}{
		{Clause{Path: "n", Op: "exists"}, true, "n, this has 3"},
		{Clause{Path: "nul", Op: "exists"}, false, "nul, this has none"},
		{Clause{Path: "nul", Op: "absent"}, true, "no nul, this has none"},
		{Clause{Path: "n", Op: "absent"}, false, "no n, this has 3"},
		{Clause{Path: "n", Op: "eq", Value: 3}, true, "n 3, this has 3"},
		{Clause{Path: "n", Op: "eq", Value: 3.0}, true, "n 3, this has 3"},
		{Clause{Path: "b", Op: "eq", Value: true}, true, "b true, this has true"},
		{Clause{Path: "b", Op: "eq", Value: 1}, false, "b 1, this has true"},
		{Clause{Path: "missing", Op: "eq", Value: 0}, false, "missing 0, this has none"},
		{Clause{Path: "missing", Op: "ne", Value: 0}, true, "missing other than 0, this has none"},
		{Clause{Path: "s", Op: "in", Value: []any{"a", "gemma4_text"}}, true, "s one of a, gemma4_text, this has gemma4_text"},
		{Clause{Path: "s", Op: "not_in", Value: []any{"a"}}, true, "s none of a, this has gemma4_text"},
		{Clause{Path: "l", Op: "each_in", Value: []any{"a", "b", "c"}}, true, "l with elements of a, b, c, this has a, b"},
		{Clause{Path: "l", Op: "each_in", Value: []any{"a"}}, false, "l with elements of a, this has a, b"},
		{Clause{Path: "s", Op: "prefix", Value: "gemma4"}, true, "s beginning with gemma4, this has gemma4_text"},
		{Clause{Path: "s", Op: "suffix", Value: "_mtp"}, false, "s ending in _mtp, this has gemma4_text"},
		{Clause{Path: "s", Op: "contains", Value: "4_"}, true, "s containing 4_, this has gemma4_text"},
		{Clause{Path: "s", Op: "not_contains", Value: "assistant"}, true, "s without assistant, this has gemma4_text"},
		{Clause{Path: "n", Op: "type", Value: "number"}, true, "n to be of type number, this has 3"},
		{Clause{Path: "f", Op: "type", Value: "integer"}, false, "f to be of type integer, this has 2.5"},
		{Clause{Path: "o", Op: "type", Value: "object"}, true, "o to be of type object, this has an object"},
		{Clause{Path: "f", Op: "ge", Value: 2.5}, true, "f at least 2.5, this has 2.5"},
		{Clause{Path: "f", Op: "gt", Value: 2.5}, false, "f above 2.5, this has 2.5"},
		{Clause{Path: "f", Op: "le", Value: 2}, false, "f at most 2, this has 2.5"},
		{Clause{Path: "f", Op: "lt", Value: 3}, true, "f below 3, this has 2.5"},
		{Clause{Path: "s", Op: "lt", Value: 3}, false, "s below 3, this has gemma4_text"},
		{Clause{Path: "list", Op: "length", Other: "n"}, true, "list of length n (3), this has 1, 2, 3"},
		{Clause{Path: "l", Op: "min_length", Value: 3}, false, "l of length at least 3, this has a, b"},
		{Clause{Path: "n", Op: "multiple_of", Value: 2}, false, "n to be a multiple of 2, this has 3"},
		{Clause{Path: "n", Op: "multiple_of", Value: 0}, false, "n to be a multiple of 0, this has 3"},
		{Clause{Path: "n", Op: "eq", Other: "missing"}, false, "n missing (none), this has 3"},
		{Clause{Path: "$.o.x", Op: "eq", Value: 1}, true, "o.x 1, this has 1"},
		{Clause{Path: "@.g", Op: "eq", Value: 1}, true, "@.g 1, this has 1"},
	} {
		require.NoError(t, row.clause.check())
		require.Equal(t, row.holds, row.clause.holds(v), "%+v", row.clause)
		require.Equal(t, row.words, row.clause.words(v))
	}
	require.Len(t, ops, 19, "a new op needs a row here")
}

func TestRulesDeriveOnlyWhatTheirNamesSay(t *testing.T) {
	base := `{"model_type":"x","h":64,"heads":5,"layers":6,"every":3,"offset":3,"zero":0,"neg":-1,"eos":[1,2],"one":2,
		"on":true,"k":7,"map":{"a":{"t":1},"b":5},"word":"x","huge":1000000}`
	for name, c := range map[string]struct {
		rule Rule
		want any
		fail string
	}{
		"first present":    {Rule{Rule: "first", To: "v", Paths: []string{"none", "h"}}, int64(64), ""},
		"first default":    {Rule{Rule: "first", To: "v", Paths: []string{"none"}, Value: 1.5}, 1.5, ""},
		"first nothing":    {Rule{Rule: "first", To: "v", Paths: []string{"none"}}, nil, ""},
		"ints wraps":       {Rule{Rule: "ints", To: "v", Paths: []string{"one"}}, []any{int64(2)}, ""},
		"ints refuses":     {Rule{Rule: "ints", To: "v", Paths: []string{"word"}}, nil, "config.json: v: holds x"},
		"union in order":   {Rule{Rule: "union", To: "v", Paths: []string{"one", "eos", "k"}}, []any{int64(2), int64(1), int64(7)}, ""},
		"union of nothing": {Rule{Rule: "union", To: "v", Paths: []string{"none"}}, []any{}, ""},
		"sum":              {Rule{Rule: "sum", To: "v", Paths: []string{"h", "heads"}}, int64(69), ""},
		"sum missing":      {Rule{Rule: "sum", To: "v", Paths: []string{"h", "none"}}, nil, "config.json: none: is missing"},
		"sum negative":     {Rule{Rule: "sum", To: "v", Paths: []string{"neg"}}, nil, "config.json: neg: is -1"},
		"divide floors":    {Rule{Rule: "divide", To: "v", Paths: []string{"h", "heads"}}, int64(12), ""},
		"divide leaves":    {Rule{Rule: "divide", To: "k", Paths: []string{"h", "zero"}}, int64(7), ""},
		"divide by zero":   {Rule{Rule: "divide", To: "v", Paths: []string{"h", "zero"}}, nil, "config.json: zero: is 0"},
		"divide by a word": {Rule{Rule: "divide", To: "v", Paths: []string{"h", "word"}}, nil, "config.json: word: is x, want an integer"},
		"repeat": {
			Rule{Rule: "repeat", To: "v", Count: "heads", Pattern: []any{"s", "f"}, Last: "z"},
			[]any{"s", "f", "s", "f", "z"},
			"",
		},
		"repeat too long": {Rule{Rule: "repeat", To: "v", Count: "huge", Pattern: []any{"s"}}, nil, "config.json: huge: is 1000000"},
		"interval": {
			Rule{Rule: "interval", To: "v", Count: "layers", Every: "every", At: "f", Else: "s"},
			[]any{"s", "s", "f", "s", "s", "f"},
			"",
		},
		"interval with offset": {
			Rule{Rule: "interval", To: "v", Count: "layers", Every: "every", Offset: "offset", At: "f", Else: "s"},
			[]any{"f", "f", "f", "s", "s", "f"},
			"",
		},
		"interval of zero": {Rule{Rule: "interval", To: "v", Count: "layers", Every: "zero", At: "f", Else: "s"}, nil, "config.json: zero: is 0"},
		"fill":             {Rule{Rule: "fill", To: "v", Count: "every", Value: "f"}, []any{"f", "f", "f"}, ""},
		"zero unless on":   {Rule{Rule: "zero_unless", To: "k", When: "on"}, int64(7), ""},
		"zero unless off":  {Rule{Rule: "zero_unless", To: "k", When: "none"}, int64(0), ""},
		"objects":          {Rule{Rule: "objects", To: "v", Paths: []string{"map"}}, map[string]any{"a": map[string]any{"t": int64(1)}}, ""},
		"objects refuses":  {Rule{Rule: "objects", To: "v", Paths: []string{"k"}}, nil, "config.json: k: is not an object"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Record{Graph: "x", Config: Dialect{Derive: []Rule{c.rule}}}
			require.NoError(t, r.Config.check())
			p, err := r.ParseConfig(config(t, base), artifact.Config{})
			if c.fail != "" {
				require.ErrorContains(t, err, c.fail)
				require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
				return
			}
			require.NoError(t, err)
			got, _ := p.Lookup(c.rule.To)
			require.Equal(t, c.want, got)
		})
	}
}

func TestTextConfigIsPreferredAndTypeComesFromTheFile(t *testing.T) {
	r := recordOf(t, "gemma4")
	p, err := r.ParseConfig(config(t, `{"model_type":"gemma4_unified","vocab_size":512,"hidden_size":1,"eos_token_id":[1,106],
		"text_config":{"model_type":"gemma4_text","hidden_size":64,"num_hidden_layers":10,"vocab_size":99,
		"num_kv_shared_layers":0,"rope_parameters":{"full_attention":{"rope_theta":5.0},"stray":3},
		"num_experts":8,"num_experts_per_tok":2}}`), artifact.Config{})
	require.NoError(t, err)
	for path, want := range map[string]any{
		"model_type": "gemma4_unified", "hidden_size": int64(64), "vocab_size": int64(512), "head_dim": int64(256),
		"num_experts": int64(0), "top_k_experts": int64(0), "rope_parameters.stray": nil,
		"rope_parameters.full_attention.rope_theta": 5.0, "layer_types.4": "full_attention", "layer_types.3": "sliding_attention",
	} {
		got, _ := p.Lookup(path)
		require.Equal(t, want, got, path)
	}
	ids, _, err := p.Ints("eos_token_ids")
	require.NoError(t, err)
	require.Equal(t, []int64{1, 106}, ids)
}

func TestGenerationConfigReplacesOrJoinsTheEndTokens(t *testing.T) {
	ids := func(graph, cfg, gen string) []int64 {
		p, err := recordOf(t, graph).ParseConfig(config(t, cfg), config(t, gen))
		require.NoError(t, err)
		out, _, err := p.Ints("eos_token_ids")
		require.NoError(t, err)
		return out
	}
	require.Equal(t, []int64{7}, ids("minicpm5", miniCPM5, `{"eos_token_id":7}`))
	require.Equal(t, []int64{1, 130073}, ids("minicpm5", miniCPM5, `{}`))
	require.Equal(t, []int64{154820, 154827, 9}, ids("glm5.2", glm52(`"eos_token_id":[154820,154827]`), `{"eos_token_id":[154827,9]}`))
}

// glm52 is GLM-5.2's geometry with the given members added.
func glm52(extra string) string {
	return `{"model_type":"glm_moe_dsa","hidden_size":6144,"num_hidden_layers":78,"num_attention_heads":64,"intermediate_size":12288,
	"moe_intermediate_size":2048,"n_routed_experts":256,"num_experts_per_tok":8,"n_shared_experts":1,"first_k_dense_replace":3,
	"routed_scaling_factor":2.5,"norm_topk_prob":true,"q_lora_rank":2048,"kv_lora_rank":512,"qk_nope_head_dim":192,
	"qk_rope_head_dim":64,"v_head_dim":256,"vocab_size":154880,"rms_norm_eps":1e-5,"rope_parameters":{"rope_theta":8000000.0},
	"index_topk":2048,"index_n_heads":32,"index_head_dim":128,"index_topk_freq":4,"index_skip_topk_offset":3,` + extra + `}`
}

func TestGLMIndexerTypesFollowFrequencyAndOffset(t *testing.T) {
	p, err := recordOf(t, "glm5.2").ParseConfig(config(t, glm52(`"eos_token_id":5`)), artifact.Config{})
	require.NoError(t, err)
	types, _, err := p.Strings("indexer_types")
	require.NoError(t, err)
	var full []int
	for i, k := range types {
		if k == "full" {
			full = append(full, i)
		}
	}
	require.Equal(t, []int{0, 1, 2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62, 66, 70, 74}, full)
	pad, _, err := p.Int("pad_token_id")
	require.NoError(t, err)
	require.Equal(t, int64(5), pad, "pad defaults to the first end token")
}

func TestABrokenKnownTypeNamesItsField(t *testing.T) {
	for name, c := range map[string]struct {
		graph, cfg, mention string
		kind                contract.Kind
	}{
		"no width":      {"universal-dense", strings.Replace(miniCPM5, `"hidden_size":1536,`, "", 1), "config.json: hidden_size", contract.ArtifactCorrupt},
		"no heads":      {"universal-dense", strings.Replace(miniCPM5, `"num_attention_heads":16,`, "", 1), "config.json: num_attention_heads", contract.ArtifactCorrupt},
		"heads of zero": {"universal-dense", strings.Replace(miniCPM5, `"num_attention_heads":16`, `"num_attention_heads":0`, 1), "config.json: num_attention_heads", contract.ArtifactCorrupt},
		"odd heads":     {"universal-dense", strings.Replace(miniCPM5, `"num_attention_heads":16`, `"num_attention_heads":15`, 1), "must divide the heads", contract.ArtifactCorrupt},
		"no eps":        {"universal-dense", strings.Replace(miniCPM5, `"rms_norm_eps":1e-6,`, "", 1), "config.json: rms_norm_eps", contract.ArtifactCorrupt},
		"another gate":  {"universal-dense", strings.Replace(miniCPM5, `{`, `{"hidden_act":"gelu",`, 1), "only the silu gate", contract.UnsupportedModel},
		"mixtral gguf":  {"universal-dense", strings.Replace(miniCPM5, `{`, `{"num_experts":8,`, 1), "a mixture of experts", contract.UnsupportedModel},
		"layer types":   {"universal-dense", strings.Replace(miniCPM5, `{`, `{"layer_types":["full_attention"],`, 1), "config.json: layer_types", contract.ArtifactCorrupt},
		"no end token":  {"glm5.2", glm52(`"x":1`), "config.json: eos_token_ids", contract.ArtifactCorrupt},
		"half of DSA":   {"glm5.2", strings.Replace(glm52(`"eos_token_id":5`), `"index_n_heads":32,`, "", 1), "config.json: index_n_heads", contract.ArtifactCorrupt},
		"no rope part":  {"glm5.2", strings.Replace(glm52(`"eos_token_id":5`), `"qk_rope_head_dim":64,`, "", 1), "config.json: qk_rope_head_dim: is missing", contract.ArtifactCorrupt},
		"grouped":       {"glm5.2", glm52(`"eos_token_id":5,"n_group":4`), "grouped routing", contract.UnsupportedModel},
		"output gate":   {"qwen3.5", `{"model_type":"qwen3_5","output_gate_type":"sigmoid"}`, "only the swish output gate", contract.UnsupportedModel},
		"qwen3 rope":    {"qwen3", strings.Replace(strings.Replace(miniCPM5, "llama", "qwen3", 1), `"rope_theta":5000000.0,`, "", 1), "config.json: rope_theta", contract.ArtifactCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			r := recordOf(t, c.graph)
			require.True(t, r.Match(config(t, c.cfg)).OK, "still of its family: broken, not unsupported")
			_, err := r.ParseConfig(config(t, c.cfg), artifact.Config{})
			require.Error(t, err)
			require.ErrorContains(t, err, c.mention)
			require.Equal(t, c.kind, contract.KindOf(err), err.Error())
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestProfilesArePerLoaderAndGGUFIsMeasured(t *testing.T) {
	r := recordOf(t, "universal-dense")
	p, err := r.ProfileFor(artifact.Safetensors)
	require.NoError(t, err)
	require.Equal(t, "universal-dense", p.ID)
	require.Equal(t, L1MLXLM, p.Fidelity)
	require.Equal(t, []string{"autoregressive", "safetensors", "universal-dense-graph"}, p.Capabilities)
	p, err = r.ProfileFor(artifact.GGUF)
	require.NoError(t, err)
	require.Equal(t, "universal-dense-gguf", p.ID)
	require.Equal(t, L3Measured, p.Fidelity)
	_, err = r.ProfileFor(artifact.Colibri)
	require.Equal(t, contract.UnsupportedModelLoad, contract.KindOf(err))
	require.ErrorContains(t, err, "universal-dense: universal-dense opens safetensors, gguf, not colibri")
	p, err = recordOf(t, "glm5.2").ProfileFor(artifact.Colibri)
	require.NoError(t, err)
	require.Equal(t, "glm5.2-colibri", p.ID)
	require.Contains(t, p.Capabilities, "colibri-container")
}

func TestDefaultsOfWhatARecordLeavesUnset(t *testing.T) {
	require.Equal(t, 4096, recordOf(t, "qwen3").TrainingContext())
	require.Equal(t, 8192, recordOf(t, "gemma4").TrainingContext())
	require.Equal(t, 0.7, recordOf(t, "qwen3").NoThinkTemperatureCap())
	require.Nil(t, recordOf(t, "qwen3").Generation.EnableThinking, "the template decides")
	require.False(t, *recordOf(t, "minicpm5").Generation.EnableThinking)
}

// What llama.cpp makes of an architecture is no default of config.json's type, which its architecture is read as.
func TestATypesDialectIsFoundByTheFilesNameAndByTheRemappedOne(t *testing.T) {
	r := recordOf(t, "qwen3-moe")
	body := `"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":32,"intermediate_size":64,"rms_norm_eps":1e-6,
		"rope_theta":1e6,"vocab_size":9,"tie_word_embeddings":true,"max_position_embeddings":64,"num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":32}`
	p, err := r.ParseConfig(config(t, `{"model_type":"qwen3moe",`+body), artifact.Config{})
	require.NoError(t, err)
	require.Contains(t, p.JSON(), `"model_type":"qwen3_moe"`)
	require.Contains(t, p.JSON(), `"norm_topk_prob":true`)
	_, err = r.ParseConfig(config(t, `{"model_type":"qwen3_moe",`+body), artifact.Config{})
	require.ErrorContains(t, err, "decoder_sparse_step")
}
