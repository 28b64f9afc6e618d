package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

const okModel = `"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}`

func TestBrokenFilesAreRefusedByPlace(t *testing.T) {
	nested := strings.Repeat(`{"type":"Sequence","normalizers":[`, 20) + strings.Repeat(`]}`, 20)
	for name, c := range map[string]struct {
		json, config string
		kind         contract.Kind
		want         string
	}{
		"not json":             {`{`, ``, contract.ArtifactCorrupt, "tokenizer.json: is not a tokenizer"},
		"no model":             {`{}`, ``, contract.ArtifactCorrupt, "tokenizer.json: model: is missing"},
		"other model":          {`{"model":{"type":"Markov"}}`, ``, contract.UnsupportedModel, `model: the model type "Markov" is not implemented`},
		"unigram by shape":     {`{"model":{"vocab":[["a"]]}}`, ``, contract.ArtifactCorrupt, `model.vocab[0]: "a" has no score`},
		"unigram unk":          {`{"model":{"type":"Unigram","unk_id":4,"vocab":[["a",-1]]}}`, ``, contract.ArtifactCorrupt, `model.unk_id: the id 4 has no token`},
		"word piece limit":     {`{"model":{"type":"WordPiece","max_input_chars_per_word":-1,"vocab":{"a":0}}}`, ``, contract.ArtifactCorrupt, `model.max_input_chars_per_word: is -1`},
		"dropout":              {`{"model":{"type":"BPE","dropout":0.1,"vocab":{"a":0},"merges":[]}}`, ``, contract.UnsupportedModel, "model.dropout: is set"},
		"suffix missing":       {`{"model":{"type":"BPE","end_of_word_suffix":"</w>","vocab":{"a":0},"merges":[["a","a</w>"]]}}`, ``, contract.ArtifactCorrupt, `"a</w>" is not in the vocabulary`},
		"unknown model field":  {`{"model":{"type":"BPE","new_thing":1,"vocab":{"a":0},"merges":[]}}`, ``, contract.UnsupportedModel, `model: the field "new_thing" is not implemented`},
		"empty vocab":          {`{"model":{"type":"BPE","vocab":{},"merges":[]}}`, ``, contract.ArtifactCorrupt, "model.vocab: is empty"},
		"vocab list":           {`{"model":{"type":"BPE","vocab":[],"merges":[]}}`, ``, contract.ArtifactCorrupt, "model.vocab: is not an object"},
		"duplicate token":      {`{"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}}`, ``, contract.ArtifactCorrupt, `model.vocab: the token "a" is there twice`},
		"duplicate id":         {`{"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}}`, ``, contract.ArtifactCorrupt, `the id 0 belongs to both "a" and "b"`},
		"negative id":          {`{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`, ``, contract.ArtifactCorrupt, `the id -1 of "a" is outside`},
		"huge id":              {`{"model":{"type":"BPE","vocab":{"a":2000000000},"merges":[]}}`, ``, contract.ArtifactCorrupt, "is outside"},
		"float id":             {`{"model":{"type":"BPE","vocab":{"a":1.5},"merges":[]}}`, ``, contract.ArtifactCorrupt, `the id of "a": is not an integer`},
		"merge of nothing":     {`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b","a x"]}}`, ``, contract.ArtifactCorrupt, `model.merges[1]: "a" with "x": "x" is not in the vocabulary`},
		"merge into nothing":   {`{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a","a"]]}}`, ``, contract.ArtifactCorrupt, `model.merges[0]: "a" with "a": "aa" is not`},
		"merge of three":       {`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a a a"]}}`, ``, contract.ArtifactCorrupt, "model.merges[0]: \"a a a\" is not two tokens"},
		"merge of one in list": {`{"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}}`, ``, contract.ArtifactCorrupt, "model.merges[0]: is not a pair"},
		"unk missing":          {`{"model":{"type":"BPE","unk_token":"u","vocab":{"a":0},"merges":[]}}`, ``, contract.ArtifactCorrupt, `model.unk_token: "u" is not`},
		"normalizer":           {`{"normalizer":{"type":"Rot13"},` + okModel + `}`, ``, contract.UnsupportedModel, `normalizer: the normalizer "Rot13" is not implemented`},
		"charsmap base64":      {`{"normalizer":{"type":"Precompiled","precompiled_charsmap":"?"},` + okModel + `}`, ``, contract.ArtifactCorrupt, `normalizer.precompiled_charsmap: illegal base64`},
		"charsmap size":        {`{"normalizer":{"type":"Precompiled","precompiled_charsmap":"//8AAAAA"},` + okModel + `}`, ``, contract.ArtifactCorrupt, `normalizer.precompiled_charsmap: has an array of 65535 bytes in 2`},
		"nested normalizer":    {`{"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Rot13"}]},` + okModel + `}`, ``, contract.UnsupportedModel, `normalizer.normalizers[1]: the normalizer "Rot13"`},
		"deep normalizer":      {`{"normalizer":` + nested + `,` + okModel + `}`, ``, contract.ArtifactCorrupt, "nested more than 8 deep"},
		"typeless":             {`{"normalizer":{},` + okModel + `}`, ``, contract.ArtifactCorrupt, "normalizer: has no type"},
		"pre-tokenizer":        {`{"pre_tokenizer":{"type":"Magic"},` + okModel + `}`, ``, contract.UnsupportedModel, `pre_tokenizer: the pre-tokenizer "Magic"`},
		"metaspace":            {`{"pre_tokenizer":{"type":"Metaspace","replacement":"__"},` + okModel + `}`, ``, contract.ArtifactCorrupt, `pre_tokenizer.replacement: must be one character`},
		"prepend scheme":       {`{"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"last"},` + okModel + `}`, ``, contract.UnsupportedModel, `pre_tokenizer.prepend_scheme: "last"`},
		"delimiter":            {`{"pre_tokenizer":{"type":"CharDelimiterSplit","delimiter":"ab"},` + okModel + `}`, ``, contract.ArtifactCorrupt, `pre_tokenizer.delimiter: must be one character`},
		"length":               {`{"pre_tokenizer":{"type":"FixedLength","length":0},` + okModel + `}`, ``, contract.ArtifactCorrupt, `pre_tokenizer.length: must be a positive`},
		"class in class":       {`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a[bc]]"},"behavior":"Isolated"},` + okModel + `}`, ``, contract.UnsupportedModel, "has a class within a class"},
		"named group":          {`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?<n>a)"},"behavior":"Isolated"},` + okModel + `}`, ``, contract.UnsupportedModel, "has a group of a kind"},
		"bad pattern":          {`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"},` + okModel + `}`, ``, contract.UnsupportedModel, `pre_tokenizer.pattern: pattern "(" is not understood`},
		"empty pattern":        {`{"pre_tokenizer":{"type":"Split","pattern":{"String":""},"behavior":"Isolated"},` + okModel + `}`, ``, contract.ArtifactCorrupt, "the pattern is empty"},
		"bad behavior":         {`{"pre_tokenizer":{"type":"Split","pattern":{"String":"x"},"behavior":"Shuffled"},` + okModel + `}`, ``, contract.UnsupportedModel, `pre_tokenizer.behavior: "Shuffled"`},
		"unknown field":        {`{"pre_tokenizer":{"type":"Digits","individual_digits":true,"base":3},` + okModel + `}`, ``, contract.UnsupportedModel, `pre_tokenizer: the field "base"`},
		"decoder":              {`{"decoder":{"type":"Magic"},` + okModel + `}`, ``, contract.UnsupportedModel, `decoder: the decoder "Magic"`},
		"decoder regex":        {`{"decoder":{"type":"Replace","pattern":{"Regex":"a"},"content":"b"},` + okModel + `}`, ``, contract.UnsupportedModel, `decoder.pattern: a Regex in a decoder`},
		"post-processor":       {`{"post_processor":{"type":"Magic"},` + okModel + `}`, ``, contract.UnsupportedModel, `post_processor: the post-processor "Magic"`},
		"pair of nothing":      {`{"post_processor":{"type":"RobertaProcessing","sep":["x",9],"cls":["a",0]},` + okModel + `}`, ``, contract.ArtifactCorrupt, `post_processor.sep: "x" has the id 9, which has no token`},
		"pair of one":          {`{"post_processor":{"type":"BertProcessing","sep":3,"cls":["a",0]},` + okModel + `}`, ``, contract.ArtifactCorrupt, `post_processor.sep: is not a token with its id`},
		"template id":          {`{"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[77],"tokens":["<s>"]}}},` + okModel + `}`, ``, contract.ArtifactCorrupt, `"<s>" has the id 77, which has no token`},
		"template token":       {`{"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{}},` + okModel + `}`, ``, contract.ArtifactCorrupt, `"<s>" is not in special_tokens`},
		"template of nothing":  {`{"post_processor":{"type":"TemplateProcessing","single":[],"pair":[],"special_tokens":{}},` + okModel + `}`, ``, contract.ArtifactCorrupt, "has no Sequence A"},
		"added without id":     {`{"added_tokens":[{"content":"x"}],` + okModel + `}`, ``, contract.ArtifactCorrupt, "added_tokens[0]: has no id"},
		"added on a token":     {`{"added_tokens":[{"id":1,"content":"x"}],` + okModel + `}`, ``, contract.ArtifactCorrupt, `added_tokens[0]`},
		"added elsewhere":      {`{"added_tokens":[{"id":1,"content":"a"}],` + okModel + `}`, ``, contract.ArtifactCorrupt, `"a" has the id 1 and in the vocabulary the id 0`},
		"added with a gap":     {`{"added_tokens":[{"id":9,"content":"x"}],` + okModel + `}`, ``, contract.ArtifactCorrupt, "would give it 3"},
		"config":               {`{` + okModel + `}`, `[]`, contract.ArtifactCorrupt, "tokenizer_config.json: is not an object"},
		"eos missing":          {`{` + okModel + `}`, `{"eos_token":"</s>"}`, contract.ArtifactCorrupt, `tokenizer_config.json: eos_token: "</s>" is not in the vocabulary`},
		"template of numbers":  {`{` + okModel + `}`, `{"chat_template":3}`, contract.ArtifactCorrupt, "chat_template: is neither"},
		"decoder entry":        {`{` + okModel + `}`, `{"added_tokens_decoder":{"x":{"content":"y"}}}`, contract.ArtifactCorrupt, `"x" is not an id`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := FromJSON([]byte(c.json), []byte(c.config))
			require.ErrorContains(t, err, c.want)
			require.Equal(t, c.kind, contract.KindOf(err))
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestConfigNamesSpecialTokensAndTemplate(t *testing.T) {
	tok, err := FromJSON([]byte(`{`+okModel+`}`), []byte(`{
		"bos_token": {"content": "a", "__type": "AddedToken"}, "eos_token": "<e>", "pad_token": null,
		"extra_special_tokens": {"image_token": "<img>"},
		"added_tokens_decoder": {"4": {"content": "<img>", "special": true}, "3": {"content": "<e>", "special": true}},
		"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]}`))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"bos_token": "a", "eos_token": "<e>", "image_token": "<img>"}, tok.SpecialTokens())
	require.Equal(t, []int32{3}, tok.EOS())
	bos, ok := tok.BOS()
	require.True(t, ok)
	require.Zero(t, bos)
	template, ok := tok.ChatTemplate()
	require.True(t, ok)
	require.Equal(t, "D", template)
	template, ok = tok.ToolTemplate()
	require.True(t, ok)
	require.Equal(t, "T", template)
	require.Equal(t, 5, tok.VocabSize())
	ids, err := tok.Encode("ab<e>", false)
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 3}, ids) // the token that bos_token names is cut out before "ab" can form
	require.True(t, tok.IsSpecial(3))
}

func TestDigestTellsTokenizersApart(t *testing.T) {
	a, err := FromJSON([]byte(`{`+okModel+`}`), nil)
	require.NoError(t, err)
	same, err := FromJSON([]byte(`{`+okModel+`}`), nil)
	require.NoError(t, err)
	b, err := FromJSON([]byte(`{`+okModel+` }`), []byte(`{}`))
	require.NoError(t, err)
	require.Equal(t, a.Digest(), same.Digest())
	require.NotEqual(t, a.Digest(), b.Digest())
	require.Len(t, a.Digest(), 64)
}

func TestPatternThatBacktracksWithoutEndIsAnError(t *testing.T) {
	m, err := newRegex("x", `(a+)+$`)
	require.NoError(t, err)
	m.(*regex).re.MatchTimeout = 50_000_000 // 50 ms
	err = m.matches(strings.Repeat("a", 60)+"b", func(int, int) error { return nil })
	require.Error(t, err)
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
}
