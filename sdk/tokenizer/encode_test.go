package tokenizer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestInvalidBytesReadAsPythonReplacesThem(t *testing.T) {
	// Python: bytes.decode("utf-8", "replace").
	for in, want := range map[string]string{
		"a\xffb": "a\uFFFDb", "\xe2\x82": "\uFFFD", "\xe2\x82\xe2\x82\xac": "\uFFFD€", "\xf0\x9f\x98": "\uFFFD", "\xf0\x9f\x98x": "\uFFFDx",
		"\xed\xa0\x80": "\uFFFD\uFFFD\uFFFD", "\xc0\xaf": "\uFFFD\uFFFD", "\xf4\x90\x80\x80": "\uFFFD\uFFFD\uFFFD\uFFFD", "\x80": "\uFFFD", "ok€": "ok€",
	} {
		require.Equal(t, want, validText(in), "%x", in)
	}
}

func TestMergeByHeapEqualsMergeByScan(t *testing.T) {
	m := readTokenizer(t, "gpt2").model.(*bpe)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[theandogr ]{1,24}`).Draw(t, "text")
		var a, b work
		for _, w := range []*work{&a, &b} {
			m.byteSymbols(w, text)
		}
		a.mergeByScan(&m.merges)
		b.mergeByHeap(&m.merges)
		require.Equal(t, a.symbols, b.symbols)
	})
}

func TestNormalizationDoesNotInsertGraphemeJoiners(t *testing.T) {
	// golang.org/x/text breaks runs of more than 30 marks with U+034F; Unicode normalization does not.
	s := "a" + strings.Repeat("\u0301", 100)
	for kind, f := range unicodeForms {
		got, err := f.normalize(s)
		require.NoError(t, err)
		require.NotContains(t, got, "\u034f", kind)
	}
	got, err := unicodeForms["NFC"].normalize(s)
	require.NoError(t, err)
	require.Equal(t, "á"+strings.Repeat("\u0301", 99), got)
}

func TestLongPathOfNormalizationEqualsShortPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOfN(rapid.RuneFrom([]rune("ae\u0301\u0323\u0327\u0316ÅﬁẛΩ가각\u1100\u1161\u11a8ड़़ཱི世")), 0, 20, -1).Draw(t, "s")
		for kind, f := range unicodeForms {
			require.Equal(t, f.form.String(s), f.long(s), "%s of %+q", kind, s)
		}
	})
}

func TestCacheKeepsItsBound(t *testing.T) {
	c := newWordCache()
	long := strings.Repeat("x", cacheWord+1)
	c.put(long, []int32{1})
	_, ok := c.get(long)
	require.False(t, ok)
	c.put("x", []int32{1, 2})
	ids, ok := c.get("x")
	require.True(t, ok)
	require.Equal(t, []int32{1, 2}, ids)
}

func BenchmarkEncode(b *testing.B) {
	text := strings.Repeat("The quick brown fox didn't jump over 13 lazy dogs, it said.\nПривет, мир! 你好，世界！ ", 500)
	for _, name := range []string{"gpt2", "smollm", "llama3", "qwen2", "o200k"} {
		tok := readTokenizer(b, name)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := tok.Encode(text, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	tok := readTokenizer(b, "gpt2")
	ids, err := tok.Encode(strings.Repeat("The quick brown fox didn't jump. ", 500), false)
	require.NoError(b, err)
	b.SetBytes(int64(33 * 500))
	for b.Loop() {
		tok.Decode(ids, false)
	}
}
