package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// smallVocab is of the MiniCPM5 of changedUniversal.
const smallVocab = 272

var changed struct {
	once sync.Once
	exe  string
}

// changedUniversal lays out bin/ anew, with a universal whose MiniCPM5 has the dimensions of a tiny checkpoint, and whose generic record
// samples at 40 where nobody says otherwise. A manifest is a part of its binary, which is built once for all tests.
func changedUniversal(t *testing.T) (exe string) {
	t.Helper()
	changed.once.Do(func() { changed.exe = buildChanged(t) })
	require.NotEmpty(t, changed.exe, "another test could not build it")
	return changed.exe
}

func buildChanged(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(built.root, "changed")
	folder := filepath.Join(dir, "plugins", "universal")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	source := filepath.Join(repository(), "plugins", "universal", "plugin.yaml")
	data, err := os.ReadFile(source)
	require.NoError(t, err)
	manifest := string(data)
	for _, d := range [][2]string{
		{"hidden_size, op: eq, value: 1536", "hidden_size, op: eq, value: 64"},
		{"num_hidden_layers, op: eq, value: 24", "num_hidden_layers, op: eq, value: 1"},
		{"num_attention_heads, op: eq, value: 16", "num_attention_heads, op: eq, value: 4"},
		{"head_dim, op: eq, value: 128", "head_dim, op: eq, value: 16"},
		{"vocab_size, op: eq, value: 130560", "vocab_size, op: eq, value: " + strconv.Itoa(smallVocab)},
		{"  - graph: universal-dense\n", "  - graph: universal-dense\n    generation: {temperature: 40, no_think_temperature_cap: 0.7}\n"},
	} {
		require.Equal(t, 1, strings.Count(manifest, d[0]), d[0])
		manifest = strings.Replace(manifest, d[0], d[1], 1)
	}
	yaml := write(t, filepath.Join(folder, "plugin.yaml"), manifest)
	overlay := write(t, filepath.Join(dir, "overlay.json"), map[string]any{"Replace": map[string]string{source: yaml}})
	build := exec.Command("go", "build", "-trimpath", "-overlay", overlay, "-o", filepath.Join(folder, "clade-universal"), "./plugins/universal")
	build.Dir, build.Env = repository(), append(os.Environ(), "CGO_ENABLED=1")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	exe := filepath.Join(dir, "clade")
	require.NoError(t, os.Link(built.clade, exe))
	ok(t, "plugin", "seal", folder)
	return exe
}
