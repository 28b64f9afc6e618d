package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/contract"
)

// FuzzGGUFVocabulary changes the metadata of a small GGUF file. What is not refused must encode and decode.
func FuzzGGUFVocabulary(f *testing.F) {
	for _, name := range []string{"bert", "t5", "whitespace"} {
		data, err := os.ReadFile(filepath.Join("testdata/llama", name+".gguf"))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "model.gguf")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		a, err := artifact.Open(path)
		if err != nil {
			return
		}
		defer func() { require.NoError(t, a.Close()) }()
		tok, err := FromArtifact(a)
		if err != nil {
			refused(t, err)
			return
		}
		survives(t, tok, "The  dog’s 123\n\u0301世界 <s>")
	})
}

// FuzzGGUFPieces builds vocabularies of every model from a list of pieces: lines of a type, a score and a token, then merges.
func FuzzGGUFPieces(f *testing.F) {
	f.Add("llama", "default", []byte("\x02\x00<unk>\n\x03\x01<s>\n\x01\x05a\n\x01\x04b\n\x01\x09ab"), "a b", "ab ba", uint8(0))
	f.Add("gpt2", "smollm", []byte("\x03\x00<s>\n\x01\x05a\n\x01\x04b\n\x01\x09ab"), "a b", "ab1 ba", uint8(3))
	f.Add("t5", "", []byte("\x02\x00<unk>\n\x03\x01<s>\n\x01\x05▁a\n\x05\x04b\n\x04\x09ab"), "", "ab ba", uint8(4))
	f.Add("bert", "", []byte("\x02\x00[UNK]\n\x03\x01[SEP]\n\x01\x05▁a\n\x01\x04b"), "", "ab Ba!", uint8(255))
	f.Add("whitespace", "whitespace", []byte("\x02\x00<unk>\n\x06\x01<0x41>\n\x01\x05a"), "", "aA\tb", uint8(7))
	f.Add("gemma4", "", []byte("\x02\x00<unk>\n\x06\x01<0x41>\n\x01\x05▁\n\x01\x02▁▁"), "▁ ▁", "  \n\nA", uint8(9))
	f.Fuzz(func(t *testing.T, model, pre string, pieces []byte, merge, text string, flags uint8) {
		v := GGUFVocab{Model: model, Pre: pre, BOS: 1, EOS: 1, EOT: -1, EOM: -1, UNK: 0, PAD: -1, SEP: 1, CLS: -1, MASK: -1}
		for i, to := range []**bool{&v.AddBOS, &v.AddEOS, &v.AddSpacePrefix, &v.RemoveExtraSpaces, &v.Lowercase, &v.StripAccents} {
			if flags&(1<<i) != 0 {
				said := flags&0x80 != 0
				*to = &said
			}
		}
		for _, line := range splitLines(pieces) {
			v.Types, v.Scores = append(v.Types, int64(line[0])), append(v.Scores, -float64(line[1])/7)
			v.Tokens = append(v.Tokens, string(line[2:]))
		}
		if merge != "" {
			v.Merges = []string{merge}
		}
		tok, err := FromGGUF(v)
		if err != nil {
			refused(t, err)
			return
		}
		survives(t, tok, text)
	})
}

// splitLines gives the lines that have a type, a score and a token.
func splitLines(data []byte) [][]byte {
	var lines [][]byte
	start := 0
	for i := 0; i <= len(data); i++ {
		if i < len(data) && (data[i] != '\n' || i-start < 2) {
			continue
		}
		if i-start >= 2 {
			lines = append(lines, data[start:i])
		}
		start = i + 1
	}
	return lines
}

// FuzzPrecompiled reads a charsmap as both users do, and normalizes a text with it.
func FuzzPrecompiled(f *testing.F) {
	var file struct {
		Normalizer struct {
			Charsmap string `json:"precompiled_charsmap"`
		} `json:"normalizer"`
	}
	data, err := os.ReadFile("testdata/tokenizers/unigram.json")
	require.NoError(f, err)
	require.NoError(f, json.Unmarshal(data, &file))
	charsmap, err := base64.StdEncoding.DecodeString(file.Normalizer.Charsmap)
	require.NoError(f, err)
	f.Add(charsmap, "ｱﾞ a\tx")
	f.Add(binary.LittleEndian.AppendUint32([]byte{4, 0, 0, 0}, 1<<10|unitLeaf), "a")
	f.Fuzz(func(t *testing.T, charsmap []byte, text string) {
		p, err := newPrecompiled("x", charsmap)
		if err != nil {
			refused(t, err)
			return
		}
		text = validText(text)
		for _, n := range []normalizer{p, &spmNormalizer{table: p, prefix: true}, &spmNormalizer{table: p, merge: true}} {
			got, err := n.normalize(text)
			require.NoError(t, err)
			require.True(t, utf8.ValidString(got), "%q", got)
		}
	})
}

// refused says that err tells the file's fault, not one of ours.
func refused(t *testing.T, err error) {
	t.Helper()
	require.Contains(t, []contract.Kind{contract.ArtifactCorrupt, contract.UnsupportedModel, contract.NotFound}, contract.KindOf(err), err)
}

// survives encodes, and holds decoding in pieces to decoding at once.
func survives(t *testing.T, tok *Tokenizer, text string) {
	t.Helper()
	for _, special := range []bool{false, true} {
		ids, err := tok.Encode(text, special)
		if err != nil {
			continue // a text without a token, or a pattern that gave up
		}
		for _, id := range ids {
			_, ok := tok.Token(id)
			require.True(t, ok, "%d", id)
		}
		pieces, flushed := streamed(tok, ids, false)
		joined := ""
		for _, p := range pieces {
			require.True(t, utf8.ValidString(p))
			joined += p
		}
		require.Equal(t, tok.Decode(ids, false), joined+flushed)
	}
}
