package tokenizer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

// vocabOf is a tokenizer of the goldens as GGUF metadata would carry it.
func vocabOf(t *testing.T, name, pre string) (GGUFVocab, *Tokenizer) {
	t.Helper()
	tok := readTokenizer(t, name)
	v := GGUFVocab{Model: "gpt2", Pre: pre, BOS: 0, EOS: 1, EOT: -1, EOM: -1, UNK: -1, PAD: -1, SEP: -1, CLS: -1, MASK: -1}
	added := map[int32]bool{}
	for _, a := range tok.AddedTokens() {
		added[a.ID] = true
	}
	for id := range int32(tok.VocabSize()) {
		s, _ := tok.Token(id)
		kind := int64(1)
		if added[id] {
			kind = typeControl
		}
		v.Tokens, v.Types = append(v.Tokens, s), append(v.Types, kind)
	}
	merges := tok.model.(*bpe).merges
	ranked := make([]string, 0, len(merges.keys))
	byRank := map[int32]string{}
	for i, key := range merges.keys {
		if key != 0 {
			a, b := int32((key-1)>>32), int32(uint32(key-1))
			byRank[merges.vals[i].rank] = tok.vocab.tokens[a] + " " + tok.vocab.tokens[b]
		}
	}
	for rank := range int32(len(byRank)) {
		ranked = append(ranked, byRank[rank])
	}
	v.Merges = ranked
	return v, tok
}

func TestGGUFMetadataGivesTheIDsOfTokenizerJSON(t *testing.T) {
	g := readGolden(t)
	for name, pre := range map[string]string{
		"gpt2": "gpt-2", "smollm": "smollm", "llama3": "llama-bpe", "qwen2": "qwen2", "qwen35": "qwen35", "o200k": "gpt-4o",
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := vocabOf(t, name, pre)
			no := false
			v.AddBOS = &no
			tok, err := FromGGUF(v)
			require.NoError(t, err)
			for i, text := range g.Texts {
				got, err := tok.Encode(text, true)
				require.NoError(t, err)
				require.Equal(t, tokens(tok, g.Tokenizers[name].Encodings[i].IDs), tokens(tok, got), "%q", text)
			}
		})
	}
}

func TestLlamaModelsBeginWithBOSUnlessTheFileSaysNo(t *testing.T) {
	v, _ := vocabOf(t, "llama3", "llama-bpe")
	tok, err := FromGGUF(v)
	require.NoError(t, err)
	ids, err := tok.Encode("a", true)
	require.NoError(t, err)
	require.Equal(t, int32(0), ids[0])
	require.Len(t, ids, 2)
	yes := true
	v.AddEOS = &yes
	v.EOT = 2
	tok, err = FromGGUF(v)
	require.NoError(t, err)
	ids, err = tok.Encode("a", true)
	require.NoError(t, err)
	require.Equal(t, int32(1), ids[2])
	require.Equal(t, []int32{1, 2}, tok.EOS())
	require.Equal(t, map[string]string{"bos_token": "<|begin|>", "eos_token": "<|end|>"}, tok.SpecialTokens())
}

func TestEveryKnownPreTokenizerNameSplits(t *testing.T) {
	for name := range preTokenizers {
		v, _ := vocabOf(t, "gpt2", name)
		tok, err := FromGGUF(v)
		require.NoError(t, err, name)
		const text = "Hello  world, it's 12345 ½ e\u0301 世界!\r\n\n x"
		ids, err := tok.Encode(text, false)
		require.NoError(t, err, name)
		if !preTokenizers[name].nfc && !preTokenizers[name].plain {
			require.Equal(t, text, tok.Decode(ids, false), name)
		}
	}
}

func TestBrokenGGUFMetadataIsRefusedByKey(t *testing.T) {
	yes := true
	for name, c := range map[string]struct {
		change func(*GGUFVocab)
		kind   contract.Kind
		want   string
	}{
		"unknown pre":   {func(v *GGUFVocab) { v.Pre = "mystery" }, contract.UnsupportedModel, `tokenizer.ggml.pre: the pre-tokenizer "mystery" is not known`},
		"other model":   {func(v *GGUFVocab) { v.Model = "rwkv" }, contract.UnsupportedModel, `tokenizer.ggml.model: the tokenizer model "rwkv"`},
		"no tokens":     {func(v *GGUFVocab) { v.Tokens = nil }, contract.ArtifactCorrupt, "tokenizer.ggml.tokens: has 0 tokens"},
		"types":         {func(v *GGUFVocab) { v.Types = v.Types[1:] }, contract.ArtifactCorrupt, "tokenizer.ggml.token_type: has"},
		"merge":         {func(v *GGUFVocab) { v.Merges[3] = "x" }, contract.ArtifactCorrupt, `tokenizer.ggml.merges[3]: "x" is not two tokens`},
		"merge of none": {func(v *GGUFVocab) { v.Merges[3] = "qq a" }, contract.ArtifactCorrupt, `tokenizer.ggml.merges[3]: "qq" with "a"`},
		"token twice":   {func(v *GGUFVocab) { v.Tokens[9] = v.Tokens[8] }, contract.ArtifactCorrupt, "tokenizer.ggml.tokens[9]: the token"},
		"eos":           {func(v *GGUFVocab) { v.EOS = 99999 }, contract.ArtifactCorrupt, "tokenizer.ggml.eos_token_id: the id 99999 has no token"},
		"bos to add":    {func(v *GGUFVocab) { v.AddBOS, v.BOS = &yes, -1 }, contract.ArtifactCorrupt, "tokenizer.ggml.add_bos_token"},
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := vocabOf(t, "gpt2", "gpt-2")
			c.change(&v)
			_, err := FromGGUF(v)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, c.kind, contract.KindOf(err))
		})
	}
}

func TestGGUFDigestCoversWhatDefinesIt(t *testing.T) {
	v, _ := vocabOf(t, "gpt2", "gpt-2")
	base := v.digest()
	template := "x"
	for name, change := range map[string]func(*GGUFVocab){
		"pre": func(v *GGUFVocab) { v.Pre = "smollm" }, "template": func(v *GGUFVocab) { v.ChatTemplate = &template },
		"eos": func(v *GGUFVocab) { v.EOS = 2 }, "merges": func(v *GGUFVocab) { v.Merges = v.Merges[1:] },
		"types": func(v *GGUFVocab) { v.Types = append([]int64{4}, v.Types[1:]...) },
	} {
		c := v
		change(&c)
		require.NotEqual(t, base, c.digest(), name)
	}
}
