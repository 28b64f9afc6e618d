package trust

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"
	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/sdk/contract"
)

func key(t *testing.T) string {
	t.Helper()
	public, _, err := minisign.GenerateKey(nil)
	require.NoError(t, err)
	return public.String()
}

func newFile(t *testing.T) *File {
	t.Helper()
	dir := t.TempDir()
	return &File{Path: filepath.Join(dir, "config", "trust.json"), Store: &store.Store{Dir: filepath.Join(dir, "store")}}
}

func TestNothingIsTrustedByDefault(t *testing.T) {
	f := newFile(t)
	sources, err := f.Sources()
	require.NoError(t, err)
	require.Empty(t, sources)
	_, err = f.Find("clade")
	require.Equal(t, contract.PluginUntrusted, contract.KindOf(err))
	require.ErrorContains(t, err, "add one with `clade plugin trust add NAME KEY LOCATION`")
}

func TestSourcesAreAddedChangedAndRemoved(t *testing.T) {
	f := newFile(t)
	k := key(t)
	require.NoError(t, f.Add(Source{Name: "example.org", Keys: []string{"untrusted comment: x\n" + k}, Location: "/a"}))
	require.NoError(t, f.Add(Source{Name: "example.org", Keys: []string{k}, Location: "/b"}))
	s, err := f.Find("example.org")
	require.NoError(t, err)
	require.Equal(t, Source{Name: "example.org", Keys: []string{k}, Location: "/b"}, s)
	require.NoError(t, f.Remove("example.org"))
	require.Equal(t, contract.NotFound, contract.KindOf(f.Remove("example.org")))
	for name, s := range map[string]Source{
		"is no name of a source": {Name: "../x", Keys: []string{k}}, "has no key": {Name: "x"}, "is not a minisign public key": {Name: "x", Keys: []string{"RW"}},
	} {
		err := f.Add(s)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err))
		require.ErrorContains(t, err, name)
	}
}

// A key that a person gives anew is believed over what an earlier index handed over.
func TestANewKeyForgetsWhatTheOldOneSaid(t *testing.T) {
	f := newFile(t)
	require.NoError(t, f.Add(Source{Name: "x", Keys: []string{key(t)}, Location: "/a"}))
	seen := filepath.Join(f.Store.SourceDir("x"), seenFile)
	require.NoError(t, store.Replace(seen, []byte(`{"schema":1}`)))
	s, err := f.Find("x")
	require.NoError(t, err)
	s.Location = "/b"
	require.NoError(t, f.Add(s))
	require.FileExists(t, seen, "another place is no other source")
	require.NoError(t, f.Add(Source{Name: "x", Keys: []string{key(t)}, Location: "/a"}))
	require.NoFileExists(t, seen)
}

func TestRootsOfTheBuildStandFirstAndKeepTheirKey(t *testing.T) {
	k := key(t)
	roots = " clade https://plugins.example.org " + k + " ; "
	t.Cleanup(func() { roots = "" })
	f := newFile(t)
	s, err := f.Find("clade")
	require.NoError(t, err)
	require.True(t, s.Root)
	require.ErrorContains(t, f.Add(Source{Name: "clade", Keys: []string{key(t)}, Location: "/x"}), "is built in with the key")
	require.NoError(t, f.Add(Source{Name: "clade", Keys: []string{k}, Location: "/mirror"}))
	s, err = f.Find("clade")
	require.NoError(t, err)
	require.Equal(t, "/mirror", s.Location)
	require.True(t, s.Root)
	require.NoError(t, f.Remove("clade"), "the mirror goes")
	require.ErrorContains(t, f.Remove("clade"), "is built in")
	for _, bad := range []string{"clade " + k, "clade x RW", "../x y " + k} {
		roots = bad
		_, err := f.Sources()
		require.Error(t, err, bad)
	}
}

func TestATrustFileThatIsNotUnderstoodTrustsNothing(t *testing.T) {
	for _, text := range []string{"{", `{"schema":2,"sources":[]}`, `{"schema":1,"sources":[{"name":"x","keys":[],"location":"/"}]}`, `{"schema":1,"sources":[],"all":true}`} {
		f := newFile(t)
		require.NoError(t, store.Replace(f.Path, []byte(text)))
		_, err := f.Sources()
		require.Equal(t, contract.PluginUntrusted, contract.KindOf(err), text)
		require.False(t, strings.Contains(err.Error(), "\n"))
	}
	f := newFile(t)
	require.NoError(t, store.Replace(f.Path, []byte(`{"schema":1,"sources":[]}`)))
	require.NoError(t, os.Chmod(f.Path, 0o664))
	_, err := f.Sources()
	require.ErrorContains(t, err, "others may write it")
}
