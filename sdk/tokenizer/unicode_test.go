//go:build full

package tokenizer

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// TestEveryCodePointIsClassedAsHuggingFaceDoes asks the installed `tokenizers` about all of Unicode.
func TestEveryCodePointIsClassedAsHuggingFaceDoes(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "unicode.bin")
	cmd := exec.Command(oraclePython(), "testdata/unicode_classes.py", bin)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "the oracle comes with make test-full")
	var raw map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(out, &raw))

	made, err := os.ReadFile(bin)
	require.NoError(t, err)
	require.True(t, bytes.Equal(unicodeRuns, made), "unicode.bin is another one than testdata/unicode_classes.py makes")
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
