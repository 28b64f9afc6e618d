//go:build linux || darwin

package plugins

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

const manifestText = `
schema: 1
name: echo
version: 0.1.0
contract: [1]
families:
  - graph: example.org/echo
    label: echo
    tier: targeted
    status: available
    model_types: [echo]
    accepts:
      - {path: model_type, op: eq, value: echo}
    config: {from: [$]}
    loaders: [safetensors]
    loop: autoregressive
    fidelity: l3-measured
    specialization: dedicated
    profile: echo-resident
    capabilities: [chat]
    fingerprint: config
`

// describing is what the test's executable, a shell script, answers.
func describing(t *testing.T, manifest string) string {
	t.Helper()
	m, err := family.ParseManifest([]byte(manifest))
	require.NoError(t, err)
	text, err := protojson.Marshal(&cladev1.DescribeResponse{
		Name: m.Name, Version: m.Version, ManifestJson: m.JSON(), ContractVersions: []uint32{contract.Major},
	})
	require.NoError(t, err)
	return "#!/bin/sh\ncat <<'END'\n" + string(text) + "\nEND\n"
}

// installed makes <dir>/echo and seals it.
func installed(t *testing.T) (dir, folder string) {
	t.Helper()
	dir = t.TempDir()
	folder = filepath.Join(dir, "echo")
	require.NoError(t, os.Mkdir(folder, 0o755))
	write(t, folder, manifestFile, manifestText, 0o644)
	write(t, folder, "clade-echo", describing(t, manifestText), 0o755)
	require.NoError(t, WriteReceipt(folder))
	return dir, folder
}

func write(t *testing.T, folder, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(folder, name)
	require.NoError(t, os.WriteFile(path, []byte(text), mode))
	require.NoError(t, os.Chmod(path, mode))
}

func TestASealedPluginIsFoundAndVerified(t *testing.T) {
	dir, folder := installed(t)
	set := Discover(filepath.Join(dir, "absent"), dir)
	require.Empty(t, set.Problems)
	in, err := set.Find("echo")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(folder, "clade-echo"), in.Exe)
	require.Len(t, in.Digest, 64)
	require.NoError(t, (&Verifier{}).Verify(in))
}

func TestAMissingPluginNamesTheExactCommand(t *testing.T) {
	_, err := Discover("/a", "/b").Find("qwen")
	require.Equal(t, contract.PluginMissing, contract.KindOf(err))
	require.ErrorContains(t, err, "qwen: the plugin is not installed; clade plugin install qwen")
}

func TestAPluginThatOthersMayHaveChangedIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, folder string)
		kind   contract.Kind
		says   string
	}{
		{"folder open to all", func(t *testing.T, f string) { require.NoError(t, os.Chmod(f, 0o777)) }, contract.PluginUntrusted, "anyone may write"},
		{"directory open to all", func(t *testing.T, f string) { require.NoError(t, os.Chmod(filepath.Dir(f), 0o777|os.ModeSticky)) }, contract.PluginUntrusted, "anyone may write"},
		{"executable open to all", func(t *testing.T, f string) { require.NoError(t, os.Chmod(f+"/clade-echo", 0o777)) }, contract.PluginUntrusted, "clade-echo"},
		{"receipt open to all", func(t *testing.T, f string) { require.NoError(t, os.Chmod(f+"/receipt.json", 0o666)) }, contract.PluginUntrusted, "receipt.json"},
		{"manifest edited", func(t *testing.T, f string) { write(t, f, manifestFile, manifestText+"\n", 0o644) }, contract.PluginUntrusted, "plugin.yaml"},
		{"no receipt", func(t *testing.T, f string) { require.NoError(t, os.Remove(f+"/receipt.json")) }, contract.PluginMissing, "receipt.json"},
		{"receipt of a later host", func(t *testing.T, f string) {
			editReceipt(t, f, func(r map[string]any) { r["lib_sha256"] = "x" })
		}, contract.PluginUntrusted, "lib_sha256"},
		{"receipt of another version", func(t *testing.T, f string) {
			editReceipt(t, f, func(r map[string]any) { r["version"] = "9.0.0" })
		}, contract.PluginMismatch, "9.0.0"},
		{"receipt without a digest", func(t *testing.T, f string) {
			editReceipt(t, f, func(r map[string]any) { r["exe_sha256"] = "ab" })
		}, contract.PluginUntrusted, "malformed"},
		{"no executable", func(t *testing.T, f string) { require.NoError(t, os.Remove(f+"/clade-echo")) }, contract.PluginMissing, "clade-echo"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, folder := installed(t)
			c.change(t, folder)
			set := Discover(dir)
			require.Empty(t, set.Plugins)
			_, err := set.Find("echo")
			require.Equal(t, c.kind.String(), contract.KindOf(err).String(), err)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func editReceipt(t *testing.T, folder string, edit func(map[string]any)) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, receiptFile))
	require.NoError(t, err)
	r := map[string]any{}
	require.NoError(t, json.Unmarshal(data, &r))
	edit(r)
	data, err = json.Marshal(r)
	require.NoError(t, err)
	write(t, folder, receiptFile, string(data), 0o644)
}

func TestABrokenFolderHidesNoOtherPlugin(t *testing.T) {
	dir, _ := installed(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "aaa"), 0o755))
	set := Discover(dir)
	require.Len(t, set.Plugins, 1)
	require.Len(t, set.Problems, 1)
	require.Equal(t, "aaa", set.Problems[0].Name)
}

func TestTheFirstDirectoryWins(t *testing.T) {
	one, folder := installed(t)
	two, _ := installed(t)
	set := Discover(one, two)
	require.Len(t, set.Plugins, 1)
	require.Equal(t, folder, set.Plugins[0].Dir)
}

func TestAChangedExecutableIsNotStarted(t *testing.T) {
	dir, folder := installed(t)
	old := time.Now().Add(-time.Hour)
	exe := filepath.Join(folder, "clade-echo")
	in, err := Discover(dir).Find("echo")
	require.NoError(t, err)
	cache := filepath.Join(t.TempDir(), "sub", "digests.json")
	time.Sleep(settled + 100*time.Millisecond)
	require.NoError(t, (&Verifier{File: cache}).Verify(in))
	require.FileExists(t, cache)
	require.NoError(t, (&Verifier{File: cache}).Verify(in))

	// Same size and the same mtime: the change of status gives it away, with and without the remembered digest.
	text, err := os.ReadFile(exe)
	require.NoError(t, err)
	info, err := os.Stat(exe)
	require.NoError(t, err)
	text[len(text)-2] ^= 1
	require.NoError(t, os.WriteFile(exe, text, 0o755))
	require.NoError(t, os.Chtimes(exe, old, info.ModTime()))
	for _, v := range []*Verifier{{File: cache}, {}} {
		err = v.Verify(in)
		require.Equal(t, contract.PluginUntrusted, contract.KindOf(err))
		require.ErrorContains(t, err, "differs from the one that its receipt states")
	}
}

func TestARememberedDigestIsUsedAndADamagedMemoryIsNot(t *testing.T) {
	dir, folder := installed(t)
	in, err := Discover(dir).Find("echo")
	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(folder, "clade-echo"))
	require.NoError(t, err)
	id, ok := identify(info)
	require.True(t, ok)
	id.SHA256 = strings.Repeat("0", 64)
	data, err := json.Marshal(map[string]identity{in.Exe: id})
	require.NoError(t, err)
	cache := t.TempDir()
	write(t, cache, "digests.json", string(data), 0o600)
	v := &Verifier{File: filepath.Join(cache, "digests.json")}
	require.Error(t, v.Verify(in), "the remembered digest was not read")
	write(t, cache, "digests.json", "{", 0o600)
	require.NoError(t, (&Verifier{File: v.File}).Verify(in))
	write(t, cache, "digests.json", string(data), 0o666)
	require.NoError(t, (&Verifier{File: v.File}).Verify(in), "a memory that anyone may write was believed")
}

func TestASymlinkIsNoExecutable(t *testing.T) {
	dir, folder := installed(t)
	in, err := Discover(dir).Find("echo")
	require.NoError(t, err)
	other := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.Rename(in.Exe, other))
	require.NoError(t, os.Symlink(other, filepath.Join(folder, "clade-echo")))
	require.ErrorContains(t, (&Verifier{}).Verify(in), "not a regular file")
}

func TestAnExecutableOfAnotherManifestIsNotSealed(t *testing.T) {
	_, folder := installed(t)
	require.NoError(t, os.Remove(filepath.Join(folder, receiptFile)))
	for name, script := range map[string]string{
		"was built with another": describing(t, strings.Replace(manifestText, "label: echo", "label: other", 1)),
		"describe":               "#!/bin/sh\necho no such thing >&2; exit 3\n",
		"exit status 3":          "#!/bin/sh\nexit 3\n",
		"unexpected":             "#!/bin/sh\necho '{'\n",
	} {
		write(t, folder, "clade-echo", script, 0o755)
		err := WriteReceipt(folder)
		require.Equal(t, contract.PluginMismatch, contract.KindOf(err), name)
		require.ErrorContains(t, err, name)
		require.NoFileExists(t, filepath.Join(folder, receiptFile))
	}
}

func TestAFolderWithAnotherNameIsNotSealed(t *testing.T) {
	_, folder := installed(t)
	other := folder + "-2"
	require.NoError(t, os.Rename(folder, other))
	require.ErrorContains(t, WriteReceipt(other), "must have its name")
}

func FuzzReceipt(f *testing.F) {
	good := fmt.Sprintf(`{"name":"a","version":"1","exe_sha256":%q,"manifest_sha256":%q,"size":1}`, digest(nil), digest(nil))
	for _, s := range []string{good, good + good, "{}", "[]", `{"size":-1}`, strings.ToUpper(good)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r receipt
		if r.parse(data) == nil {
			require.NotEmpty(t, r.Name)
			require.Positive(t, r.Size)
			require.Len(t, r.ExeSHA256, 64)
		}
	})
}
