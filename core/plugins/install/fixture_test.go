//go:build linux || darwin

package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/plugins"
	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/publish"
	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/core/plugins/trust"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

const manifestText = `
schema: 1
name: echo
version: 0.1.0
contract: [1]
runtime: {mlx: ["0.32.2"], mlxc: ["0.6.0"]}
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

// describing is an executable, a shell script, that says it is the plugin of a manifest.
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

// bench is a publisher with its folder and key, and a host with its store.
type bench struct {
	t    *testing.T
	work string
	// dir is the published source.
	dir string
	key minisign.PrivateKey
	*Manager
}

// newBench has nothing published; the source example.org is trusted.
func newBench(t *testing.T) *bench {
	t.Helper()
	work := t.TempDir()
	b := &bench{t: t, work: work, dir: filepath.Join(work, "source")}
	var err error
	b.key, err = publish.NewKey(filepath.Join(work, "sign.key"), "", false)
	require.NoError(t, err)
	b.Manager = managerIn(work)
	b.Offers, err = corefamily.Embedded()
	require.NoError(t, err)
	require.NoError(t, b.Trust.Add(trust.Source{Name: "example.org", Keys: []string{b.public()}, Location: b.dir}))
	return b
}

// managerIn is the host of a bench's folder; another process makes the same.
func managerIn(work string) *Manager {
	s := &store.Store{Dir: filepath.Join(work, "store")}
	return &Manager{
		Store: s, Trust: &trust.File{Path: filepath.Join(work, "config", "trust.json"), Store: s}, LockFile: filepath.Join(work, "config", "plugins.lock"),
		Machine: index.Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, Variants: []string{"cpu"}},
	}
}

func (b *bench) public() string { return b.key.Public().(minisign.PublicKey).String() }

// write writes a file below the bench's folder and returns its path.
func (b *bench) write(name, text string, mode os.FileMode) string {
	b.t.Helper()
	path := filepath.Join(b.work, name)
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	_ = os.Remove(path)
	require.NoError(b.t, os.WriteFile(path, []byte(text), mode))
	require.NoError(b.t, os.Chmod(path, mode))
	return path
}

// plugin builds a plugin's folder.
func (b *bench) plugin(manifest string) string {
	b.t.Helper()
	m, err := family.ParseManifest([]byte(manifest))
	require.NoError(b.t, err)
	folder := filepath.Join("built", m.Name)
	b.write(folder+"/plugin.yaml", manifest, 0o644)
	b.write(folder+"/LICENSE", "do what you like\n", 0o644)
	b.write(folder+"/lib/libown.so", "native code of "+m.Version, 0o644)
	return filepath.Dir(b.write(folder+"/clade-"+m.Name, describing(b.t, manifest), 0o755))
}

// runtime builds a runtime's folder.
func (b *bench) runtime(mlx string) string {
	b.t.Helper()
	folder := "built/runtime"
	var files []map[string]any
	for name, text := range map[string]string{"mlx/lib/libmlx.so": "libmlx " + mlx, "licences/MLX.txt": "MIT"} {
		b.write(folder+"/"+name, text, 0o644)
		files = append(files, map[string]any{"path": name, "size": len(text), "sha256": digestOf([]byte(text))})
	}
	data, err := json.Marshal(map[string]any{
		"variant": "cpu", "mlx": mlx, "mlxc": "0.6.0", "os": runtime.GOOS, "arch": runtime.GOARCH,
		"libraries": map[string]string{"libmlx": "mlx/lib/libmlx.so"}, "files": files,
	})
	require.NoError(b.t, err)
	return filepath.Dir(b.write(folder+"/runtime.json", string(data), 0o644))
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// publish adds folders to the source.
func (b *bench) publish(folders ...string) *index.Index {
	b.t.Helper()
	x, err := publish.Add(publish.Options{Dir: b.dir, Name: "example.org", Key: b.key, Lifetime: 24 * time.Hour, Replace: true, Now: time.Now()}, folders)
	require.NoError(b.t, err)
	return x
}

// published has echo 0.1.0 and its runtime.
func published(t *testing.T) *bench {
	b := newBench(t)
	b.publish(b.plugin(manifestText), b.runtime("0.32.2"))
	return b
}

// resign changes the index as its publisher could.
func (b *bench) resign(edit func(x *index.Index)) {
	b.t.Helper()
	raw, err := os.ReadFile(filepath.Join(b.dir, index.File))
	require.NoError(b.t, err)
	x, err := index.Parse(raw)
	require.NoError(b.t, err)
	x.Serial++
	edit(x)
	raw, err = json.Marshal(x)
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, index.File), raw, 0o644))
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, index.Signature), index.Sign(b.key, raw, x), 0o644))
}

// entry is one of a crafted archive.
type entry struct {
	name, link, text string
	kind             byte
	mode             int64
}

// craft puts an archive of the publisher's own making in echo's place, announced with its true size and digest.
func (b *bench) craft(entries ...entry) {
	b.t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	tape := tar.NewWriter(zipped)
	total := int64(0)
	for _, e := range entries {
		kind := e.kind
		if kind == 0 {
			kind = tar.TypeReg
		}
		require.NoError(b.t, tape.WriteHeader(&tar.Header{Typeflag: kind, Name: e.name, Linkname: e.link, Size: int64(len(e.text)), Mode: e.mode}))
		_, err := tape.Write([]byte(e.text))
		require.NoError(b.t, err)
		total += int64(len(e.text))
	}
	require.NoError(b.t, tape.Close())
	require.NoError(b.t, zipped.Close())
	b.place(out.Bytes(), max(total, 1))
}

// place announces data as echo's archive.
func (b *bench) place(data []byte, unpacked int64) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, "crafted.tar.gz"), data, 0o644))
	b.resign(func(x *index.Index) {
		a := &x.Plugins["echo"].Versions[0].Platforms[0]
		a.URLs, a.Size, a.Unpacked, a.SHA256 = []string{"crafted.tar.gz"}, int64(len(data)), unpacked, digestOf(data)
	})
}

// sound are the entries of an echo that installs.
func (b *bench) sound(manifest string) []entry {
	return []entry{{name: "plugin.yaml", text: manifest, mode: 0o644}, {name: "clade-echo", text: describing(b.t, manifest), mode: 0o755}}
}

// try proposes and installs echo.
func (b *bench) try() error {
	p, err := b.Propose(b.t.Context(), "example.org/echo", "")
	if err != nil {
		return err
	}
	_, err = b.Install(b.t.Context(), p)
	return err
}

// set is what a host would find installed.
func (b *bench) set() plugins.Set {
	set := plugins.Set{}
	set.AddStore(b.Store)
	return set
}

// works says that echo is installed, whole, and the only thing there.
func (b *bench) works() {
	b.t.Helper()
	set := b.set()
	require.Empty(b.t, set.Problems)
	in, err := set.Find("echo")
	require.NoError(b.t, err)
	require.NoError(b.t, (&plugins.Verifier{}).Verify(in))
	require.Empty(b.t, b.left("tmp/*"))
	require.Len(b.t, b.left("sha256-*"), 2)
}

// left are the store's paths with a pattern.
func (b *bench) left(pattern string) []string {
	found, err := filepath.Glob(filepath.Join(b.Store.Dir, pattern))
	require.NoError(b.t, err)
	return found
}

// untouched says that nothing is installed and nothing lies around.
func (b *bench) untouched() {
	b.t.Helper()
	require.Empty(b.t, b.left("sha256-*"), "a folder was left behind")
	require.Empty(b.t, b.left("tmp/*"), "something was left in tmp")
	require.Empty(b.t, b.left("installed.json"))
	require.NoFileExists(b.t, b.LockFile)
}

func edited(text string, pairs ...string) string {
	out := strings.NewReplacer(pairs...).Replace(text)
	if out == text {
		panic(fmt.Sprintf("nothing to replace: %v", pairs))
	}
	return out
}
