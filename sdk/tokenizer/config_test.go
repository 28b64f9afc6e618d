package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

// TestSideFilesMeanWhatTransformersMakesOfThem: testdata/config.json is made by testdata/config.py with transformers.
func TestSideFilesMeanWhatTransformersMakesOfThem(t *testing.T) {
	data, err := os.ReadFile("testdata/config.json")
	require.NoError(t, err)
	var g struct {
		Texts []string `json:"texts"`
		Cases map[string]struct {
			Tokenizer string                     `json:"tokenizer"`
			Config    json.RawMessage            `json:"config"`
			Map       json.RawMessage            `json:"map"`
			Changes   map[string]json.RawMessage `json:"changes"`
			Named     map[string]string          `json:"named"`
			IDs       [][]int32                  `json:"ids"`
			Special   [][]int32                  `json:"special"`
			Skipped   []string                   `json:"skipped"`
		} `json:"cases"`
	}
	require.NoError(t, json.Unmarshal(data, &g))
	require.Greater(t, len(g.Cases), 20)
	for name, c := range g.Cases {
		t.Run(name, func(t *testing.T) {
			tok, err := fromJSON(changed(t, c.Tokenizer, c.Changes), present(c.Config), present(c.Map))
			require.NoError(t, err)
			require.Equal(t, c.Named, tok.SpecialTokens())
			for i, text := range g.Texts {
				got, err := tok.Encode(text, false)
				require.NoError(t, err)
				require.Equal(t, tokens(tok, c.IDs[i]), tokens(tok, got))
				got, err = tok.Encode(text, true)
				require.NoError(t, err)
				require.Equal(t, tokens(tok, c.Special[i]), tokens(tok, got))
				require.Equal(t, c.Skipped[i], tok.Decode(got, true))
			}
			if eos, ok := c.Named["eos_token"]; ok {
				id, ok := tok.ID(eos)
				require.True(t, ok)
				require.Equal(t, []int32{id}, tok.EOS())
			}
		})
	}
}

// changed is a tokenizer.json of the goldens with other top-level fields.
func changed(t *testing.T, name string, changes map[string]json.RawMessage) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "tokenizers", name+".json"))
	require.NoError(t, err)
	if changes == nil {
		return data
	}
	var file map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &file))
	for key, value := range changes {
		file[key] = value
	}
	data, err = json.Marshal(file)
	require.NoError(t, err)
	return data
}

func present(raw json.RawMessage) []byte {
	if absent(raw) {
		return nil
	}
	return raw
}

func TestSpecialTokenOutsideTheVocabularyIsNamedButNoToken(t *testing.T) {
	tok, err := fromJSON([]byte(`{`+okModel+`}`), nil, []byte(`{"pad_token":"<pad>","bos_token":"a"}`))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"pad_token": "<pad>", "bos_token": "a"}, tok.SpecialTokens())
	require.Equal(t, 3, tok.VocabSize())
	_, ok := tok.ID("<pad>")
	require.False(t, ok)
}

func TestSpecialTokensMapIsInTheDigest(t *testing.T) {
	a, err := fromJSON([]byte(`{`+okModel+`}`), nil, nil)
	require.NoError(t, err)
	b, err := fromJSON([]byte(`{`+okModel+`}`), nil, []byte(`{"bos_token":"a"}`))
	require.NoError(t, err)
	require.NotEqual(t, a.Digest(), b.Digest())
}

func TestBrokenSideFilesAreRefusedByPlace(t *testing.T) {
	for name, c := range map[string]struct{ config, specials, want string }{
		"map":           {``, `[]`, "special_tokens_map.json: is not an object"},
		"token":         {``, `{"eos_token":3}`, "special_tokens_map.json: eos_token: json"},
		"object":        {`{"image_token":{"content":[]}}`, ``, "tokenizer_config.json: image_token: json"},
		"extra":         {`{"extra_special_tokens":3}`, ``, "tokenizer_config.json: extra_special_tokens: is neither"},
		"extra by name": {`{"extra_special_tokens":{"x":3}}`, ``, "tokenizer_config.json: extra_special_tokens.x: json"},
		"list":          {``, `{"additional_special_tokens":[3]}`, "special_tokens_map.json: additional_special_tokens: json"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := fromJSON([]byte(`{`+okModel+`}`), []byte(c.config), []byte(c.specials))
			require.ErrorContains(t, err, c.want)
			require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
		})
	}
}

func TestMalformedTruncationAndPaddingAreRefusedByField(t *testing.T) {
	const truncation = `"truncation":{"direction":"Right","max_length":8,"strategy":"LongestFirst","stride":0}`
	const padding = `"padding":{"strategy":{"Fixed":8},"direction":"Left","pad_to_multiple_of":null,"pad_id":0,"pad_type_id":0,"pad_token":"a"}`
	for _, section := range []string{truncation, padding, `"truncation":null,"padding":null`} {
		_, err := FromJSON([]byte(`{`+section+`,`+okModel+`}`), nil)
		require.NoError(t, err)
	}
	for _, c := range []struct {
		section, want string
		kind          contract.Kind
	}{
		{`"truncation":3`, "truncation: cannot be read", contract.ArtifactCorrupt},
		{`"truncation":{"max_length":8,"strategy":"LongestFirst"}`, "truncation.stride: is missing", contract.ArtifactCorrupt},
		{`"truncation":{"max_length":-8,"strategy":"LongestFirst","stride":0}`, "truncation.max_length: is -8", contract.ArtifactCorrupt},
		{`"truncation":{"max_length":8,"strategy":"Random","stride":0}`, `truncation.strategy: is "Random"`, contract.ArtifactCorrupt},
		{`"truncation":{"max_length":8,"strategy":"OnlyFirst","stride":0,"direction":"Up"}`, `truncation.direction: is "Up"`, contract.ArtifactCorrupt},
		{`"truncation":{"max_length":8,"strategy":"OnlyFirst","stride":0,"new":1}`, `truncation: the field "new" is not implemented`, contract.UnsupportedModel},
		{`"padding":[]`, "padding: cannot be read", contract.ArtifactCorrupt},
		{`"padding":{"strategy":{"Fixed":"x"}}`, "padding.strategy: cannot be read", contract.ArtifactCorrupt},
		{`"padding":{"strategy":"Longest"}`, `padding.strategy: is "Longest"`, contract.ArtifactCorrupt},
		{`"padding":{"strategy":"BatchLongest","direction":"Left","pad_id":0,"pad_type_id":0}`, "padding.pad_token: is missing", contract.ArtifactCorrupt},
		{`"padding":{"strategy":"BatchLongest","direction":"Left","pad_id":-1,"pad_type_id":0,"pad_token":"a"}`, "padding.pad_id: is -1", contract.ArtifactCorrupt},
		{`"padding":{"strategy":"BatchLongest","pad_id":0,"pad_type_id":0,"pad_token":"a"}`, "padding.direction: is missing", contract.ArtifactCorrupt},
	} {
		_, err := FromJSON([]byte(`{`+c.section+`,`+okModel+`}`), nil)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, c.kind, contract.KindOf(err), c.section)
	}
}
