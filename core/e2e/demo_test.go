//go:build full

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// smollm2 is what `make demo` brings; CLADE_TEST_SMOLLM2 names another place.
func smollm2(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("CLADE_TEST_SMOLLM2"); path != "" {
		return path
	}
	found, err := filepath.Glob(filepath.Join(repository(), "bin", "demo", "*.gguf"))
	require.NoError(t, err)
	require.NotEmpty(t, found, "run make demo")
	return found[0]
}

// The sentence is what mlx-lm 0.32.2 says on the dequantized weights at float32, greedily.
func TestDemoAnswersExactly(t *testing.T) {
	require.Equal(t, "The capital of France is Paris.\n", ok(t, "run", smollm2(t), "What is the capital of France?"))
}

func TestStopStringEndsTheAnswerAndIsNotInIt(t *testing.T) {
	require.Equal(t, "The capital of\n", ok(t, "run", smollm2(t), "What is the capital of France?", "--stop", " France"))
}
