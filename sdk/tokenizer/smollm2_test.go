//go:build full

package tokenizer

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/artifact"
)

// smollm2 is the model of `make demo`; CLADE_SMOLLM2 names another place.
func smollm2(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("CLADE_SMOLLM2"); path != "" {
		return path
	}
	found, err := filepath.Glob("../../bin/demo/*.gguf")
	require.NoError(t, err)
	require.NotEmpty(t, found, "run make demo")
	return found[0]
}

// oraclePython has Hugging Face tokenizers; CLADE_ORACLE_PYTHON names another one than that of `make test-full`.
func oraclePython() string {
	if path := os.Getenv("CLADE_ORACLE_PYTHON"); path != "" {
		return path
	}
	return "../../bin/oracle/bin/python"
}

func openSmolLM2(t testing.TB) *Tokenizer {
	t.Helper()
	a, err := artifact.Open(smollm2(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	tok, err := FromArtifact(a)
	require.NoError(t, err)
	return tok
}

func TestSmolLM2IDsEqualHuggingFace(t *testing.T) {
	cmd := exec.Command(oraclePython(), "testdata/smollm2.py", smollm2(t))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "the oracle comes with make test-full")
	var cases []struct {
		Text string  `json:"text"`
		IDs  []int32 `json:"ids"`
		Back string  `json:"back"`
	}
	require.NoError(t, json.Unmarshal(out, &cases))
	tok := openSmolLM2(t)
	n := 0
	for _, c := range cases {
		got, err := tok.Encode(c.Text, false)
		require.NoError(t, err)
		require.Equal(t, tokens(tok, c.IDs), tokens(tok, got), "%q", c.Text)
		require.Equal(t, c.Back, tok.Decode(c.IDs, false), "%q", c.Text)
		n += len(got)
	}
	t.Logf("%d texts, %d ids", len(cases), n)
}

func BenchmarkSmolLM2Encode(b *testing.B) {
	tok := openSmolLM2(b)
	text, err := os.ReadFile("testdata/golden.py")
	require.NoError(b, err)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := tok.Encode(string(text), false); err != nil {
			b.Fatal(err)
		}
	}
}
