package tokenizer

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func allTokenizers(t testing.TB) map[string]*Tokenizer {
	t.Helper()
	files, err := filepath.Glob("testdata/tokenizers/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := map[string]*Tokenizer{}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".json")
		all[name] = readTokenizer(t, name)
	}
	return all
}

func streamed(tok *Tokenizer, ids []int32, skip bool) (pieces []string, flushed string) {
	s := tok.NewStream(skip)
	for _, id := range ids {
		pieces = append(pieces, s.Push(id))
	}
	return pieces, s.Flush()
}

func TestStreamJoinedEqualsDecode(t *testing.T) {
	for name, tok := range allTokenizers(t) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				ids := rapid.SliceOfN(rapid.Int32Range(-1, int32(tok.VocabSize())), 0, 24).Draw(t, "ids")
				skip := rapid.Bool().Draw(t, "skip")
				pieces, flushed := streamed(tok, ids, skip)
				require.Equal(t, tok.Decode(ids, skip), strings.Join(pieces, "")+flushed)
				for _, p := range pieces {
					require.True(t, utf8.ValidString(p))
				}
			})
		})
	}
}

// TestStreamOfGoldensJoinedEqualsDecode feeds ids that mean text, which random ids seldom do.
func TestStreamOfGoldensJoinedEqualsDecode(t *testing.T) {
	eachGolden(t, func(t *testing.T, tok *Tokenizer, g *golden, want goldenTokenizer) {
		for _, e := range want.Encodings {
			pieces, flushed := streamed(tok, e.IDs, false)
			require.Equal(t, tok.Decode(e.IDs, false), strings.Join(pieces, "")+flushed)
		}
	})
}

func TestStreamHoldsACharacterUntilItIsComplete(t *testing.T) {
	tok := readTokenizer(t, "gpt2")
	var ids []int32
	for _, b := range []byte("a€b") {
		id, ok := tok.ID(string(byteRunes[b]))
		require.True(t, ok)
		ids = append(ids, id)
	}
	pieces, flushed := streamed(tok, ids, false)
	require.Equal(t, []string{"a", "", "", "€", "b"}, pieces)
	require.Empty(t, flushed)
	pieces, flushed = streamed(tok, ids[:3], false)
	require.Equal(t, []string{"a", "", ""}, pieces)
	require.Equal(t, "\uFFFD", flushed)
	pieces, _ = streamed(tok, []int32{ids[1], ids[0]}, false)
	require.Equal(t, []string{"", "\uFFFDa"}, pieces)
}

func TestStripAndReplaceAcrossPieces(t *testing.T) {
	join := func(st stage, pieces ...string) string {
		var b strings.Builder
		for _, p := range pieces {
			st.push(p, func(s string) { b.WriteString(s) })
		}
		st.flush(func(s string) { b.WriteString(s) })
		return b.String()
	}
	require.Equal(t, "a b", join(&stripJoined{strip: strip{' ', 2, 3}}, " ", " ", "a", " ", "b ", "  "))
	require.Equal(t, " a ", join(&stripJoined{strip: strip{' ', 1, 1}}, "  a", "  "))
	require.Equal(t, "", join(&stripJoined{strip: strip{' ', 9, 9}}, "  ", "  "))
	require.Equal(t, "A aa", join(&replaceJoined{find: "aab", content: "A"}, "a", "ab", " ", "aa"))
	require.Equal(t, "a", join(stripEach{strip{'e', 1, 2}}, "eaee"))
}

func TestTokenizerServesConcurrentRequests(t *testing.T) {
	g := readGolden(t)
	for name, tok := range allTokenizers(t) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for _, i := range rand.Perm(len(g.Texts)) {
					got, err := tok.Encode(g.Texts[i], false)
					require.NoError(t, err)
					require.Equal(t, g.Tokenizers[name].Encodings[i].IDs, append([]int32{}, got...), name)
				}
			})
		}
		wg.Wait()
	}
}

func FuzzEncodeDecode(f *testing.F) {
	toks := allTokenizers(f)
	for _, s := range []string{"", " a  b\n", "\xff\xfe€\xe2\x82", "I'M 123 世界", "<|im_start|>user", "e\u0301\u0323", "👩‍💻", strings.Repeat("\u0301", 40)} {
		f.Add(s)
	}
	lossless := []string{"gpt2", "smollm", "llama3", "o200k"} // no normalizer, every byte has a token
	f.Fuzz(func(t *testing.T, text string) {
		for name, tok := range toks {
			ids, err := tok.Encode(text, false)
			require.NoError(t, err, name)
			pieces, flushed := streamed(tok, ids, false)
			require.Equal(t, tok.Decode(ids, false), strings.Join(pieces, "")+flushed, name)
		}
		for _, name := range lossless {
			ids, _ := toks[name].Encode(text, false)
			require.Equal(t, validText(text), toks[name].Decode(ids, false), name)
		}
	})
}

func FuzzFromJSON(f *testing.F) {
	f.Add([]byte(`{"model":{"type":"BPE","unk_token":"a","byte_fallback":true,"vocab":{"a":0,"<0x20>":1},"merges":[]},"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Replace","pattern":{"String":" "},"content":"_"}]}}`), []byte(`{"eos_token":"a","added_tokens_decoder":{"0":{"content":"a"}}}`))
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]},"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"b","type_id":0}}],"pair":[],"special_tokens":{"b":{"id":"b","ids":[1],"tokens":["b"]}}},"decoder":{"type":"ByteLevel"}}`), []byte(`{"chat_template":[{"name":"default","template":"x"}]}`))
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"added_tokens":[{"id":3,"content":"<x>"}]}`), []byte(`{}`))
	f.Add([]byte(`{"model":{"vocab":{"a":0},"merges":[["a","a"]]},"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"}]}}`), []byte(nil))
	f.Add([]byte(`{"model":{"vocab":{"\u0120a":0},"merges":[]},"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a+"},"behavior":"Removed","invert":true}}`), []byte(`{"bos_token":null}`))
	f.Fuzz(func(t *testing.T, tokenizerJSON, config []byte) {
		tok, err := FromJSON(tokenizerJSON, config)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		ids, err := tok.Encode("a b <x> \u00e9 12", true)
		if err == nil {
			_ = tok.Decode(ids, false)
		}
	})
}
