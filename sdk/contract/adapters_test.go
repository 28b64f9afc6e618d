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
