package contract

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChoicesOfAdapters(t *testing.T) {
	half := 0.5
	for text, want := range map[string][]AdapterUse{
		"none": nil, "a": {{ID: "a"}}, "a+org/b.1:0.5": {{ID: "a"}, {ID: "org/b.1", Scale: &half}},
	} {
		got, err := ParseAdapters(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "+", "a+", "a+a", "a:", "a:x", "a:NaN", "a:1e9", "none+a", "a b", "é", strings.Repeat("x", 200), "a+b+c+d+e+f+g+h+i"} {
		_, err := ParseAdapters(text)
		require.Equal(t, InvalidArgument, KindOf(err), text)
	}
}

// An id is put into messages, metrics and file names by others: it is no path.
func TestAnAdaptersIDIsNoPath(t *testing.T) {
	for _, id := range []string{"a", "org/b.1", "A_b-c", "0", strings.Repeat("x", maxID)} {
		require.NoError(t, CheckAdapterID(id), id)
	}
	for _, id := range []string{
		"", "none", "x/../y", "..", ".", "../x", "x/..", "/x", "x/", "x//y", "a/b/c", ".x", "org/.x", "-x", "_x", "a b", `a\b`, "a\x00", "é", strings.Repeat("x", maxID+1),
	} {
		err := CheckAdapterID(id)
		require.Equal(t, InvalidArgument, KindOf(err), id)
		require.ErrorContains(t, err, "is no id: want NAME or OWNER/NAME")
	}
}

func FuzzParseAdapters(f *testing.F) {
	f.Add("a+b:0.5")
	f.Add("none")
	f.Fuzz(func(t *testing.T, text string) {
		uses, err := ParseAdapters(text)
		if err != nil {
			return
		}
		for _, u := range uses {
			require.NoError(t, CheckAdapterID(u.ID))
		}
	})
}
