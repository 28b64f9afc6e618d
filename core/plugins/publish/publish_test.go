//go:build linux || darwin

package publish

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/plugins/index"
)

// runtimeFolder is the smallest runtime.
func runtimeFolder(t *testing.T, library string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "licences"), 0o755))
	for name, text := range map[string]string{
		"lib.so": library, "licences/X.txt": "MIT",
		"runtime.json": `{"variant":"cpu","mlx":"1.0","mlxc":"2.0","os":"linux","arch":"amd64","libraries":{"libmlx":"lib.so"},"files":[` +
			`{"path":"licences/X.txt","size":3,"sha256":"` + zeros + `"},{"path":"lib.so","size":1,"sha256":"` + zeros + `"}]}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

func options(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	key, err := ReadKey(filepath.Join(dir, "k", "throwaway.key"), "", true)
	require.NoError(t, err)
	return Options{Dir: filepath.Join(dir, "dist"), Name: "example.org", Key: key, Lifetime: 10 * time.Hour, Throwaway: true, Now: time.Now()}
}

func TestTheSameFoldersChangeNothing(t *testing.T) {
	o := options(t)
	folder := runtimeFolder(t, "x")
	first, err := Add(o, []string{folder})
	require.NoError(t, err)
	o.Now = o.Now.Add(time.Hour)
	again, err := Add(o, []string{folder})
	require.NoError(t, err)
	require.Equal(t, first.Serial, again.Serial)
	o.Now = o.Now.Add(7 * time.Hour) // less than half of its life is left
	later, err := Add(o, nil)
	require.NoError(t, err)
	require.Greater(t, later.Serial, first.Serial)
	require.True(t, later.Expires.After(first.Expires))
	require.Equal(t, first.Runtimes, later.Runtimes)
}

func TestAVersionKeepsItsContentUnlessItMayBeReplaced(t *testing.T) {
	o := options(t)
	first, err := Add(o, []string{runtimeFolder(t, "x")})
	require.NoError(t, err)
	_, err = Add(o, []string{runtimeFolder(t, "y")})
	require.ErrorContains(t, err, "is published with another content")
	o.Replace = true
	second, err := Add(o, []string{runtimeFolder(t, "y")})
	require.NoError(t, err)
	require.Greater(t, second.Serial, first.Serial)
	left, err := filepath.Glob(filepath.Join(o.Dir, "archives", "*"))
	require.NoError(t, err)
	require.Len(t, left, 1, "the replaced archive is gone")
}

// A source that was made anew is not taken for an old index by hosts that saw the one before.
func TestASourceMadeAnewGoesOnWithItsSerial(t *testing.T) {
	o := options(t)
	folder := runtimeFolder(t, "x")
	first, err := Add(o, []string{folder})
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(o.Dir))
	o.Now = o.Now.Add(2 * time.Second)
	second, err := Add(o, []string{folder})
	require.NoError(t, err)
	require.Greater(t, second.Serial, first.Serial)
	require.Equal(t, first.Runtimes, second.Runtimes, "the same folder gave another archive")
}

func TestAThrowawayKeySignsNothingElse(t *testing.T) {
	dir := t.TempDir()
	throwaway, kept := filepath.Join(dir, "t.key"), filepath.Join(dir, "k.key")
	made, err := ReadKey(throwaway, "", true)
	require.NoError(t, err)
	_, err = ReadKey(throwaway, "", false)
	require.ErrorContains(t, err, "is a throwaway key")
	_, err = ReadKey(kept, "", false)
	require.ErrorContains(t, err, "--new-key")
	_, err = NewKey(kept, "", false)
	require.NoError(t, err)
	_, err = NewKey(kept, "", false)
	require.Error(t, err, "a key was overwritten")
	_, err = ReadKey(kept, "", true)
	require.ErrorContains(t, err, "is no throwaway key")
	_, err = ReadKey(kept, "", false)
	require.NoError(t, err)
	again, err := ReadKey(throwaway, "", true)
	require.NoError(t, err)
	require.True(t, made.Equal(again))
	info, err := os.Stat(throwaway)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	public, err := os.ReadFile(filepath.Join(dir, "t.pub"))
	require.NoError(t, err)
	parsed, err := index.ParseKey(string(public))
	require.NoError(t, err)
	require.Equal(t, made.ID(), parsed.ID())
}

func TestAPluginWithoutALicenceIsNotPublished(t *testing.T) {
	require.ErrorContains(t, licensed(t.TempDir()), "holds no licence")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "LICENSE.md"), nil, 0o600))
	require.NoError(t, licensed(dir))
}

func TestASourceNeedsANameAndKeepsIt(t *testing.T) {
	o := options(t)
	o.Name = ""
	_, err := Add(o, nil)
	require.ErrorContains(t, err, "--name")
	o.Name = "example.org"
	_, err = Add(o, nil)
	require.NoError(t, err)
	o.Name = "other.org"
	_, err = Add(o, nil)
	require.ErrorContains(t, err, "is the source example.org")
}
