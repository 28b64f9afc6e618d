//go:build full

package tokenizer

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTwentyThousandRandomTextsEqualHuggingFace asks the installed `tokenizers` text by text.
func TestTwentyThousandRandomTextsEqualHuggingFace(t *testing.T) {
	files, err := filepath.Glob("testdata/tokenizers/*.json")
	require.NoError(t, err)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { equalCorpus(t, fromFile(t, file), file, 20_000, true) })
	}
}

func fromFile(t *testing.T, file string) *Tokenizer {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	tok, err := FromJSON(data, nil)
	require.NoError(t, err)
	return tok
}

// equalCorpus compares tok with what `tokenizers` makes of file. The ids around a text are compared where ends says so.
func equalCorpus(t *testing.T, tok *Tokenizer, file string, count int, ends bool) {
	c := readCorpus(t)
	cmd := exec.Command(oraclePython(), "testdata/corpus.py", file, strconv.Itoa(count))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start(), "the oracle comes with make test-full")
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	n, differences := 0, 0
	for ; lines.Scan(); n++ {
		var want struct {
			IDs           []int32 `json:"ids"`
			Special       []int32 `json:"special"`
			Back, Skipped string
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &want))
		text := c.text(n)
		got, err := tok.Encode(text, false)
		require.NoError(t, err)
		special, err := tok.Encode(text, true)
		require.NoError(t, err)
		if !ends {
			special = want.Special
		}
		same := true
		for _, pair := range [][2]any{
			{tokens(tok, want.IDs), tokens(tok, got)},
			{tokens(tok, want.Special), tokens(tok, special)},
			{want.Back, tok.Decode(want.IDs, false)},
			{want.Skipped, tok.Decode(want.IDs, true)},
		} {
			if same && !equal(pair[0], pair[1]) {
				same = false
				t.Errorf("text %d: %+q\nwant %+q\n got %+q", n, text, pair[0], pair[1])
			}
		}
		if !same {
			if differences++; differences == 5 {
				t.Fatal("and more")
			}
		}
	}
	require.NoError(t, cmd.Wait())
	require.Equal(t, count, n)
}

func equal(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}
