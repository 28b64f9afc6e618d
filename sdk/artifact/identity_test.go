package artifact

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/contract"
)

func TestSnapshotFingerprintComesFromAnImmutableRevisionOnly(t *testing.T) {
	rev := strings.Repeat("aB", 20)
	for path, want := range map[string]string{
		"/c/models--org--my--name/snapshots/" + rev:                      "hf:org/my--name@" + strings.ToLower(rev),
		"/c/models--org--n/snapshots/" + rev + "/x.gguf":                 "hf:org/n@" + strings.ToLower(rev),
		"models--org--n/snapshots/" + strings.Repeat("0", 64):            "hf:org/n@" + strings.Repeat("0", 64),
		`C:\c\models--org--n\snapshots\` + rev:                           "hf:org/n@" + strings.ToLower(rev),
		"/c/models--org--n/snapshots/main":                               "",
		"/c/models--org--n/snapshots/" + rev[:39]:                        "",
		"/c/models--org--n/snapshots/" + strings.Repeat("0", 65):         "",
		"/c/models--org/snapshots/" + rev:                                "",
		"/c/models----n/snapshots/" + rev:                                "",
		"/c/models-----n/snapshots/" + rev:                               "",
		"/c/models--org--/snapshots/" + rev:                              "",
		"/c/org/n":                                                       "",
		"/c/models--org--n/snapshots/" + rev + "0000z":                   "",
		"/c/xmodels--org--n/snapshots/" + rev:                            "",
		"/c/models--a/b--n/snapshots/" + rev:                             "",
		"/c/datasets--org--n/snapshots/" + rev:                           "",
		"/models--o--first/snapshots/main/models--p--q/snapshots/" + rev: "hf:p/q@" + strings.ToLower(rev),
	} {
		require.Equal(t, want, SnapshotFingerprint(path), path)
	}
}

func TestFingerprintWithoutASchemeIsRefused(t *testing.T) {
	require.NoError(t, CheckFingerprint("hf:org/name@abc"))
	require.NoError(t, CheckFingerprint("sha256:00"))
	for _, text := range []string{"", "org/name", "hf:", "hf:a b", ":x"} {
		err := CheckFingerprint(text)
		require.Equal(t, contract.InvalidArgument, contract.KindOf(err), text)
		require.Equal(t, 2, contract.KindOf(err).ExitCode())
	}
}

func TestKVConfigIsReadInFileOrderAndStrictly(t *testing.T) {
	got, err := ParseKVConfig("kv_config.json", []byte(`[{"layer_idx":3,"bits":8,"group_size":64,"note":"kept out"},{"layer_idx":0,"bits":4,"group_size":32}]`))
	require.NoError(t, err)
	require.Equal(t, []KVLayer{{3, 8, 64}, {0, 4, 32}}, got)
	for text, mention := range map[string]string{
		`{}`:   "an object where a list",
		`[`:    "not valid JSON",
		`[1]`:  "[0]: is 1",
		`[{}]`: "[0].layer_idx: is null",
		`[{"layer_idx":-1,"bits":4,"group_size":64}]`:                                         "[0].layer_idx: is -1",
		`[{"layer_idx":1,"bits":4.0,"group_size":64}]`:                                        "[0].bits: is 4.0",
		`[{"layer_idx":1,"bits":4}]`:                                                          "[0].group_size",
		`[{"layer_idx":1,"bits":4,"group_size":64},{"layer_idx":1,"bits":8,"group_size":64}]`: "layer 1 has two entries",
		`[{"layer_idx":1,"bits":4,"group_size":64,"bits":4}]`:                                 "not valid JSON",
		`[{"layer_idx":1,"bits":` + strings.Repeat("9", 30) + `,"group_size":64}]`:            "[0].bits",
	} {
		_, err := ParseKVConfig("kv_config.json", []byte(text))
		require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err), text)
		require.ErrorContains(t, err, "kv_config.json")
		require.ErrorContains(t, err, mention, text)
	}
}

func FuzzParseKVConfig(f *testing.F) {
	f.Add([]byte(`[{"layer_idx":3,"bits":8,"group_size":64}]`))
	f.Add([]byte(`[]`))
	f.Add([]byte(`[{"layer_idx":1e3,"bits":null,"group_size":[]}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		layers, err := ParseKVConfig("kv_config.json", data)
		if err != nil {
			require.Equal(t, contract.ArtifactCorrupt, contract.KindOf(err))
			return
		}
		for _, l := range layers {
			require.GreaterOrEqual(t, l.Layer, int64(0))
			require.Positive(t, l.Bits*l.Group)
		}
	})
}

// modelFolder is a folder with a side file and nothing else that Open needs.
func modelFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestSideFilesAreFound(t *testing.T) {
	dir := modelFolder(t, map[string]string{"config.json": `{}`, VisionSidecarFile: "", KVConfigFile: `[{"layer_idx":0,"bits":4,"group_size":64}]`})
	a := &Artifact{Path: dir, Format: Safetensors}
	require.True(t, a.VisionSidecar())
	kv, err := a.KVConfig()
	require.NoError(t, err)
	require.Equal(t, []KVLayer{{0, 4, 64}}, kv)
	bare := &Artifact{Path: t.TempDir(), Format: Safetensors}
	require.False(t, bare.VisionSidecar())
	kv, err = bare.KVConfig()
	require.NoError(t, err)
	require.Nil(t, kv)
}

func TestIdentityIsOfNamesAndBytes(t *testing.T) {
	var d Identities
	of := func(seed string, files map[string]string) string {
		id, err := d.Of(t.Context(), seed, modelFolder(t, files))
		require.NoError(t, err)
		require.Len(t, id, 64)
		return id
	}
	base := of("draft", map[string]string{"a": "1", "b": "2"})
	require.Equal(t, base, of("draft", map[string]string{"b": "2", "a": "1", ".hidden": "x"}), "where it lies says nothing")
	for name, other := range map[string]string{
		"seed":    of("cache", map[string]string{"a": "1", "b": "2"}),
		"bytes":   of("draft", map[string]string{"a": "1", "b": "3"}),
		"name":    of("draft", map[string]string{"a": "1", "c": "2"}),
		"more":    of("draft", map[string]string{"a": "1", "b": "2", "c": ""}),
		"shifted": of("draft", map[string]string{"a": "12", "b": ""}),
	} {
		require.NotEqual(t, base, other, name)
	}
	_, err := d.Of(t.Context(), "", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, contract.NotFound, contract.KindOf(err))
	_, err = d.Of(t.Context(), "", t.TempDir())
	require.Equal(t, contract.NotFound, contract.KindOf(err))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = (&Identities{}).Of(cancelled, "", modelFolder(t, map[string]string{"a": "1"}))
	require.Equal(t, contract.Cancelled, contract.KindOf(err))
}

// A file rewritten in place with its old times still has another ctime: the memory must not answer for it.
func TestIdentityIsRememberedOnlyWhileTheFilesStay(t *testing.T) {
	var d Identities
	dir := modelFolder(t, map[string]string{"a": "1"})
	path := filepath.Join(dir, "a")
	first, err := d.Of(t.Context(), "", dir)
	require.NoError(t, err)
	require.Len(t, d.seen, 1)
	for key := range d.seen { // what is remembered is what is answered
		d.seen[key] = "remembered"
	}
	again, err := d.Of(t.Context(), "", dir)
	require.NoError(t, err)
	require.Equal(t, "remembered", again)

	info, err := os.Stat(path)
	require.NoError(t, err)
	time.Sleep(20 * time.Millisecond) // past the file system's clock tick
	require.NoError(t, os.WriteFile(path, []byte("2"), 0o600))
	require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	other, err := d.Of(t.Context(), "", dir)
	require.NoError(t, err)
	require.NotEqual(t, "remembered", other)
	require.NotEqual(t, first, other)

	target := modelFolder(t, map[string]string{"b": "2"})
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink(filepath.Join(target, "b"), path))
	linked, err := d.Of(t.Context(), "", dir)
	require.NoError(t, err)
	require.Equal(t, other, linked, "a link is what it points at, under its own name")
}

// cuttingContext changes a file at the first look at the context, which is after the set was listed.
type cuttingContext struct {
	context.Context
	change func()
}

func (c *cuttingContext) Err() error {
	if c.change != nil {
		c.change()
		c.change = nil
	}
	return nil
}

func TestIdentityOfFilesThatChangeMeanwhileIsRefused(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"grown":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), []byte("longer"), 0o600) },
		"added":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "c"), nil, 0o600) },
		"removed": func(dir string) error { return os.Remove(filepath.Join(dir, "b")) },
	} {
		t.Run(name, func(t *testing.T) {
			var d Identities
			dir := modelFolder(t, map[string]string{"a": "1", "b": "2"})
			ctx := &cuttingContext{t.Context(), func() { require.NoError(t, change(dir)) }}
			_, err := d.Of(ctx, "", dir)
			require.Error(t, err)
			require.Contains(t, []contract.Kind{contract.ArtifactCorrupt, contract.NotFound}, contract.KindOf(err))
			require.Empty(t, d.seen, "what was refused is not remembered")
		})
	}
}

// A stamp tells files apart without reading them, but not within the grain of their times.
func TestAStampIsSettledOnceTheFilesAreOld(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "model.safetensors")
	require.NoError(t, os.WriteFile(file, []byte("a"), 0o600))
	first, settled, err := Stamp(dir)
	require.NoError(t, err)
	require.False(t, settled, "it was written just now")
	old := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(file, old, old))
	second, settled, err := Stamp(dir)
	require.NoError(t, err)
	require.False(t, settled, "whoever sets a time back cannot set back that it was set")
	require.NotEqual(t, first, second)
	again, _, err := Stamp(dir)
	require.NoError(t, err)
	require.Equal(t, second, again)
	_, _, err = Stamp(filepath.Join(dir, "none"))
	require.Equal(t, contract.NotFound, contract.KindOf(err))
}
