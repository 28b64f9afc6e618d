package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnswerIsHeldToOneGrammarOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.json")
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	for _, verb := range [][]string{{"run", "nowhere", "hi"}, {"generate", "nowhere", "--prompt", "hi"}} {
		for says, args := range map[string][]string{
			"--regex: cannot stand beside --schema":   {"--schema", file, "--regex", "a"},
			"constraint.json_schema: is not JSON":     {"--schema", file},
			"gone.json: cannot be read":               {"--grammar", "gone.json"},
			"--choice: cannot stand beside --json-ob": {"--json-object", "--choice", "a"},
		} {
			code, out, errs := run(t, "", append(verb, args...)...)
			require.Contains(t, []int{2, 5}, code, args)
			require.Empty(t, out)
			require.Contains(t, errs, says)
		}
	}
}
