package source

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/plugins/index"
)

// bundled is a bundle of one archive.
func bundled(t testing.TB, a index.Archive, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	tape := tar.NewWriter(&out)
	for _, e := range []struct {
		name string
		data []byte
	}{{index.File, []byte("{}")}, {index.Signature, []byte("s")}, {BundleName(a), content}} {
		require.NoError(t, tape.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.name, Size: int64(len(e.data)), Mode: 0o644, Format: tar.FormatPAX}))
		_, err := tape.Write(e.data)
		require.NoError(t, err)
	}
	require.NoError(t, tape.Close())
	return out.Bytes()
}

func TestABundleIsReadFromAnyOffset(t *testing.T) {
	_, a, content := published(t)
	path := filepath.Join(t.TempDir(), "b.tar")
	require.NoError(t, os.WriteFile(path, bundled(t, a, content), 0o600))
	s, err := Open(path, Options{})
	require.NoError(t, err)
	for _, offset := range []int64{0, 1, 777_777, a.Size} {
		r, from, err := s.Archive(t.Context(), a, offset)
		require.NoError(t, err)
		require.Equal(t, offset, from)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, content[offset:], got)
	}
	a.SHA256 = "other"
	_, _, err = s.Archive(t.Context(), a, 0)
	require.ErrorContains(t, err, "clade plugin bundle --platform")
}

func FuzzBundle(f *testing.F) {
	a := index.Archive{SHA256: "abc", URLs: []string{"a"}, Size: 3}
	f.Add(bundled(f, a, []byte("xyz")))
	f.Add([]byte{})
	f.Add(make([]byte, 1024))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "b.tar")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		s, err := Open(path, Options{})
		if err != nil {
			return
		}
		_, _, _ = s.Index(t.Context())
		if r, _, err := s.Archive(t.Context(), a, 1); err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(r, 1<<20))
			require.NoError(t, r.Close())
		}
	})
}
