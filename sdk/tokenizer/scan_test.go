package tokenizer

import (
	"maps"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestScannersMatchWhatTheirPatternsMatch holds each hand-written scanner to its pattern run by regexp2.
func TestScannersMatchWhatTheirPatternsMatch(t *testing.T) {
	c := readCorpus(t)
	for _, pattern := range slices.Sorted(maps.Keys(scanners)) {
		find, err := newRegex("x", pattern)
		require.NoError(t, err)
		for i := range 2000 {
			text := validText(c.text(i))
			require.Equal(t, matched(t, find, text), matched(t, scanners[pattern], text), "%s: %+q", pattern, text)
		}
		rapid.Check(t, func(r *rapid.T) {
			text := scannerText().Draw(r, "text")
			require.Equal(r, matched(r, find, text), matched(r, scanners[pattern], text), pattern)
		})
	}
}

// scannerText draws what the alternatives of the patterns turn on more often than chance would.
func scannerText() *rapid.Generator[string] {
	return rapid.StringOf(rapid.OneOf(
		rapid.SampledFrom([]rune("'''sStTmMdDrRvVeElLſ  \t\r\n\n\u00a0\u2003\u0085_-/!?09٣½aZäßé\u0301\u0940世界가ไक\u200d😀\ufeff")),
		rapid.Rune(),
	))
}

func matched(t require.TestingT, m matcher, text string) [][2]int {
	spans := [][2]int{}
	require.NoError(t, m.matches(text, func(start, end int) error {
		spans = append(spans, [2]int{start, end})
		return nil
	}))
	return spans
}

func FuzzScanners(f *testing.F) {
	f.Add("it's 1234 THEY'RE\r\n\n  x ſ'ſ é\u0301!!\n")
	patterns := slices.Sorted(maps.Keys(scanners))
	find := make([]matcher, len(patterns))
	for i, p := range patterns {
		var err error
		find[i], err = newRegex("x", p)
		require.NoError(f, err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			text = validText(text)
		}
		for i, p := range patterns {
			require.Equal(t, matched(t, find[i], text), matched(t, scanners[p], text), p)
		}
	})
}
