package pack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func folder(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"clade-x": 0o755, "lib/a.so": 0o600, "LICENSE": 0o644} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("content of "+name), mode))
	}
	return dir
}

func TestTheSameFolderGivesTheSameBytes(t *testing.T) {
	var a, b bytes.Buffer
	one, err := Pack(&a, folder(t), nil)
	require.NoError(t, err)
	dir := folder(t)
	old := time.Now().Add(-24 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "LICENSE"), old, old))
	require.NoError(t, os.Chmod(filepath.Join(dir, "LICENSE"), 0o600))
	two, err := Pack(&b, dir, nil)
	require.NoError(t, err)
	require.Equal(t, one, two)
	require.Equal(t, a.Bytes(), b.Bytes())
	require.Equal(t, int64(a.Len()), one.Size)
}

func TestAnArchiveUnpacksToItsFilesReadOnly(t *testing.T) {
	var out bytes.Buffer
	made, err := Pack(&out, folder(t), func(p string) bool { return p == "LICENSE" })
	require.NoError(t, err)
	into := t.TempDir()
	files, err := unpackInto(t, &out, into, made.Unpacked)
	require.NoError(t, err)
	require.Equal(t, made.Files, files)
	require.NoFileExists(t, filepath.Join(into, "LICENSE"))
	for name, mode := range map[string]os.FileMode{"clade-x": 0o555, "lib/a.so": 0o444} {
		info, err := os.Stat(filepath.Join(into, name))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm())
	}
}

func unpackInto(t testing.TB, r io.Reader, dir string, limit int64) ([]File, error) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, root.Close()) }()
	return Unpack(r, root, Limits{Bytes: limit})
}

func TestALinkIsNotPacked(t *testing.T) {
	dir := folder(t)
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "passwd")))
	_, err := Pack(io.Discard, dir, nil)
	require.ErrorContains(t, err, "passwd: is not a regular file")
}

// A small archive that would fill a disk stops at the bytes that it was announced with.
func TestABombStopsAtItsAnnouncedSize(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "zeros"), make([]byte, 8<<20), 0o600))
	var out bytes.Buffer
	_, err := Pack(&out, dir, nil)
	require.NoError(t, err)
	into := t.TempDir()
	_, err = unpackInto(t, &out, into, 1000)
	require.ErrorContains(t, err, "unpacks to more than the 1000 bytes")
	require.NoFileExists(t, filepath.Join(into, "zeros"))
}

func TestMoreEntriesThanAnythingNeedsAreRefused(t *testing.T) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	tape := tar.NewWriter(zipped)
	for range maxFiles + 1 {
		require.NoError(t, tape.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "d/"}))
	}
	require.NoError(t, tape.Close())
	require.NoError(t, zipped.Close())
	_, err := unpackInto(t, &out, t.TempDir(), 1)
	require.ErrorContains(t, err, "entries")
}

func TestWhatFollowsTheArchiveIsRefused(t *testing.T) {
	var out, more bytes.Buffer
	made, err := Pack(&out, folder(t), nil)
	require.NoError(t, err)
	zipped := gzip.NewWriter(&more)
	_, err = zipped.Write(make([]byte, 4*maxPadding))
	require.NoError(t, err)
	require.NoError(t, zipped.Close())
	_, err = unpackInto(t, io.MultiReader(&out, &more), t.TempDir(), made.Unpacked)
	require.ErrorContains(t, err, "something follows its end")
}

func FuzzUnpack(f *testing.F) {
	var out bytes.Buffer
	_, err := Pack(&out, folder(f), nil)
	require.NoError(f, err)
	f.Add(out.Bytes())
	f.Add([]byte{})
	f.Add([]byte(strings.Repeat("\x1f\x8b", 40)))
	f.Fuzz(func(t *testing.T, data []byte) {
		// The tar layer, with and without the compression before it.
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, _ = w.Write(data)
		_ = w.Close()
		for _, r := range []io.Reader{bytes.NewReader(data), &zipped} {
			outer := t.TempDir()
			into := filepath.Join(outer, "in")
			require.NoError(t, os.Mkdir(into, 0o755))
			_, _ = unpackInto(t, r, into, 1<<16)
			entries, err := os.ReadDir(outer)
			require.NoError(t, err)
			require.Len(t, entries, 1, "something was written outside")
		}
	})
}
