//go:build full

package tokenizer

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// TestEveryCodePointIsClassedAsHuggingFaceDoes asks the installed `tokenizers` about all of Unicode.
func TestEveryCodePointIsClassedAsHuggingFaceDoes(t *testing.T) {
	cmd := exec.Command(oraclePython(), "testdata/unicode_classes.py")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "the oracle comes with make test-full")
	var raw map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(out, &raw))

	for name, bit := range map[string]uint8{"L": letter, "N": number, "M": mark, "numeric": numeric} {
		var ranges [][2]rune
		require.NoError(t, json.Unmarshal(raw[name], &ranges))
		want := map[rune]bool{}
		for _, r := range ranges {
			for c := r[0]; c <= r[1]; c++ {
				want[c] = true
			}
		}
		eachCodePoint(func(c rune) {
			if got := classes().of(c)&bit != 0; got != want[c] {
				t.Errorf("%s of %U is %v, want %v", name, c, got, want[c])
			}
		})
	}
	for name, n := range map[string]normalizer{"NFD": unicodeForms["NFD"], "NFKD": unicodeForms["NFKD"], "Lower": lowercase{}} {
		var mapped map[string][]rune
		require.NoError(t, json.Unmarshal(raw[name], &mapped))
		eachCodePoint(func(c rune) {
			want := string(c)
			if to, ok := mapped[strconv.Itoa(int(c))]; ok {
				want = string(to)
			}
			got, err := n.normalize(string(c))
			require.NoError(t, err)
			if got != want {
				t.Errorf("%s of %U is %+q, want %+q", name, c, got, want)
			}
		})
	}
}

func eachCodePoint(fn func(rune)) {
	for c := rune(0); c <= unicode.MaxRune; c++ {
		if c < 0xD800 || c > 0xDFFF {
			fn(c)
		}
	}
}
