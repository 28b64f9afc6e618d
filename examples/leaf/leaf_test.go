package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/plugintest"
	"github.com/clademl/clade/sdk/plugintest/check"
)

// built is what `make build model` made: run the tests by `make test`.
func built(t *testing.T, parts ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{"build"}, parts...)...))
	require.NoError(t, err)
	_, err = os.Stat(path)
	require.NoError(t, err, "make test builds it first")
	return path
}

func runtimeDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("CLADE_RUNTIME")
	require.NotEmpty(t, dir, "the runtime that plugin.yaml names: `clade doctor` says where yours is")
	return dir
}

func TestThePluginKeepsTheContract(t *testing.T) {
	plugintest.Run(t, check.Options{Path: built(t, "leaf", "clade-leaf"), Model: built(t, "model"), Runtime: runtimeDir(t)})
}

// Without its library the plugin runs the fallback and says so in the plan; it is not another model.
func TestWithoutItsLibraryThePluginRunsTheFallback(t *testing.T) {
	data, err := os.ReadFile(built(t, "leaf", "clade-leaf"))
	require.NoError(t, err)
	exe := filepath.Join(t.TempDir(), "clade-leaf")
	require.NoError(t, os.WriteFile(exe, data, 0o755))
	r := plugintest.Run(t, check.Options{
		Path: exe, Model: built(t, "model"), Runtime: runtimeDir(t), Only: []string{"plan", "open", "generate", "repeat"},
	})
	require.True(t, r.OK())
}
