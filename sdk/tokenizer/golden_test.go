package tokenizer

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is testdata/golden.json, made by testdata/golden.py with Hugging Face tokenizers.
type golden struct {
	Texts      []string                   `json:"texts"`
	Long       map[string]string          `json:"long"`
	Tokenizers map[string]goldenTokenizer `json:"tokenizers"`
}

type goldenTokenizer struct {
	Encodings []struct {
		IDs     []int32 `json:"ids"`
		Special []int32 `json:"special"` // absent: as IDs
		Text    *string `json:"text"`    // absent: the text itself
		Skipped *string `json:"skipped"` // absent: as Text
	} `json:"encodings"`
	Decodings []struct {
		IDs     []int32 `json:"ids"`
		Text    string  `json:"text"`
		Skipped string  `json:"skipped"`
	} `json:"decodings"`
	Long map[string]struct {
		Count int    `json:"count"`
		Hash  string `json:"hash"`
	} `json:"long"`
	Random string `json:"random"` // hashes of corpus.py's texts
}

func readGolden(t testing.TB) *golden {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(data, &g))
	return &g
}

func readTokenizer(t testing.TB, name string) *Tokenizer {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "tokenizers", name+".json"))
	require.NoError(t, err)
	tok, err := FromJSON(data, nil)
	require.NoError(t, err)
	return tok
}

func eachGolden(t *testing.T, fn func(t *testing.T, tok *Tokenizer, g *golden, want goldenTokenizer)) {
	g := readGolden(t)
	require.NotEmpty(t, g.Tokenizers)
	for name, want := range g.Tokenizers {
		t.Run(name, func(t *testing.T) { fn(t, readTokenizer(t, name), g, want) })
	}
}

func TestIDsEqualHuggingFace(t *testing.T) {
	eachGolden(t, func(t *testing.T, tok *Tokenizer, g *golden, want goldenTokenizer) {
		require.Len(t, want.Encodings, len(g.Texts))
		for i, text := range g.Texts {
			e := want.Encodings[i]
			got, err := tok.Encode(text, false)
			require.NoError(t, err)
			require.Equal(t, tokens(tok, e.IDs), tokens(tok, got), "text %d: %q", i, text)
			if e.Special == nil {
				e.Special = e.IDs
			}
			got, err = tok.Encode(text, true)
			require.NoError(t, err)
			require.Equal(t, tokens(tok, e.Special), tokens(tok, got), "with special tokens, text %d: %q", i, text)
		}
	})
}

// tokens spells ids out, so that a difference can be read.
func tokens(tok *Tokenizer, ids []int32) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		s, _ := tok.Token(id)
		out[i] = fmt.Sprintf("%d %s", id, s)
	}
	return out
}

func TestTextEqualsHuggingFace(t *testing.T) {
	eachGolden(t, func(t *testing.T, tok *Tokenizer, g *golden, want goldenTokenizer) {
		for i, e := range want.Encodings {
			text := g.Texts[i]
			if e.Text != nil {
				text = *e.Text
			}
			require.Equal(t, text, tok.Decode(e.IDs, false), "text %d", i)
			if e.Skipped != nil {
				text = *e.Skipped
			}
			require.Equal(t, text, tok.Decode(e.IDs, true), "text %d", i)
		}
		for i, d := range want.Decodings {
			require.Equal(t, d.Text, tok.Decode(d.IDs, false), "ids %d: %v", i, tokens(tok, d.IDs))
			require.Equal(t, d.Skipped, tok.Decode(d.IDs, true), "ids %d", i)
		}
	})
}

func TestLinesOf100KBEqualHuggingFace(t *testing.T) {
	eachGolden(t, func(t *testing.T, tok *Tokenizer, g *golden, want goldenTokenizer) {
		for name, unit := range g.Long {
			// golden.py cuts after 100,000 characters, not bytes.
			runes := []rune(strings.Repeat(unit, 100_000/len([]rune(unit))+1))
			got, err := tok.Encode(string(runes[:100_000]), false)
			require.NoError(t, err)
			require.Len(t, got, want.Long[name].Count, name)
			require.Equal(t, want.Long[name].Hash, strconv.FormatUint(hashIDs(got), 10), name)
		}
	})
}

// hashIDs is golden.py's hash: h = (h * 1000003 + id + 1) mod 2^61.
func hashIDs(ids []int32) uint64 {
	const mod = 1 << 61
	h := uint64(0)
	for _, id := range ids {
		hi, lo := bits.Mul64(h, 1_000_003)
		_, h = bits.Div64(hi, lo, mod)
		h = (h + uint64(id) + 1) % mod
	}
	return h
}
