package scaffold

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/family"
)

// tree is every file below dir but what a build makes.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		require.NoError(t, err)
		rel, err := filepath.Rel(dir, path)
		require.NoError(t, err)
		if e.IsDir() && rel == "build" {
			return filepath.SkipDir
		}
		if !e.IsDir() {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			out[filepath.ToSlash(rel)] = string(data)
		}
		return nil
	}))
	return out
}

func TestTheExampleIsWhatIsGenerated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "leaf")
	files, err := New(dir, Options{Name: "leaf"})
	require.NoError(t, err)
	want := tree(t, "../../../examples/leaf")
	require.Len(t, files, len(want))
	require.Equal(t, want, tree(t, dir), "run go generate in core/plugins/scaffold")
}

func TestANewFamilyHasItsOwnNamesEverywhere(t *testing.T) {
	dir := t.TempDir() // empty is fine
	_, err := New(dir, Options{Name: "oak", Domain: "models.example.com", SDKProxy: "/opt/goproxy"})
	require.NoError(t, err)
	files := tree(t, dir)
	for name, text := range files {
		require.NotContains(t, strings.ToLower(name+text), "leaf", name)
		require.NotContains(t, text, "example.org", name)
	}
	m, err := family.ParseManifest([]byte(files["plugin.yaml"]))
	require.NoError(t, err)
	require.Equal(t, "oak", m.Name)
	require.Equal(t, "models.example.com/oak", m.Families[0].Graph)
	require.Contains(t, files["Makefile"], "\nSDK_PROXY ?= /opt/goproxy\n")
	require.Contains(t, files, "lib/oak.cpp")
}

func TestNothingThatExistsIsOverwritten(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	_, err := New(dir, Options{Name: "oak"})
	require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
	require.ErrorContains(t, err, "is not empty; name another folder with --dir")
	require.Len(t, tree(t, dir), 1)
}

func TestBadNamesAreRefused(t *testing.T) {
	for _, o := range []Options{
		{Name: ""},
		{Name: "a"},
		{Name: "Oak"},
		{Name: "../oak"},
		{Name: "oak-tree"},
		{Name: "oak", Domain: "nodots"},
		{Name: "oak", Domain: "a.b/c"},
		{Name: "oak", SDKProxy: "relative"},
	} {
		_, err := New(filepath.Join(t.TempDir(), "x"), o)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), "%+v", o)
	}
}
