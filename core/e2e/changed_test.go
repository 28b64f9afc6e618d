package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// changedUniversal lays out bin/ anew, with a universal whose records are what edit makes of them: a manifest is a part of its binary.
func changedUniversal(t *testing.T, edit func(manifest string) string) (exe string) {
	t.Helper()
	dir := t.TempDir()
	folder := filepath.Join(dir, "plugins", "universal")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	source := filepath.Join(repository(), "plugins", "universal", "plugin.yaml")
	manifest, err := os.ReadFile(source)
	require.NoError(t, err)
	changed := edit(string(manifest))
	require.NotEqual(t, string(manifest), changed)
	yaml := write(t, filepath.Join(folder, "plugin.yaml"), changed)
	overlay := write(t, filepath.Join(dir, "overlay.json"), map[string]any{"Replace": map[string]string{source: yaml}})
	build := exec.Command("go", "build", "-trimpath", "-overlay", overlay, "-o", filepath.Join(folder, "clade-universal"), "./plugins/universal")
	build.Dir, build.Env = repository(), append(os.Environ(), "CGO_ENABLED=1")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	exe = filepath.Join(dir, "clade")
	require.NoError(t, os.Link(built.clade, exe))
	ok(t, "plugin", "seal", folder)
	return exe
}
