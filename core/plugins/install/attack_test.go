//go:build linux || darwin

package install

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/stretchr/testify/require"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/plugins"
	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/family"
)

// Each attack is refused with a text of its own, and leaves nothing behind.
func TestEveryAttackIsRefusedAndLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		attack func(b *bench)
		kind   contract.Kind
		says   string
	}{
		{"wrong signature", func(b *bench) {
			path := filepath.Join(b.dir, index.File)
			raw, err := os.ReadFile(path)
			require.NoError(b.t, err)
			require.NoError(b.t, os.WriteFile(path, append(raw, '\n'), 0o644))
		}, contract.PluginUntrusted, "its signature does not fit its content"},
		{"no signature", func(b *bench) {
			require.NoError(b.t, os.Truncate(filepath.Join(b.dir, index.Signature), 0))
		}, contract.PluginUntrusted, "its signature is malformed"},
		{"unknown key", func(b *bench) {
			_, other, err := minisign.GenerateKey(nil)
			require.NoError(b.t, err)
			b.key = other
			b.resign(func(*index.Index) {})
		}, contract.PluginUntrusted, "which is not trusted for source example.org"},
		{"another source's index", func(b *bench) {
			b.resign(func(x *index.Index) { x.Name = "example.com" })
		}, contract.PluginUntrusted, "is the index of example.com, trusted as example.org"},
		{"expired index", func(b *bench) {
			b.resign(func(x *index.Index) { x.Expires = time.Now().Add(-time.Minute) })
		}, contract.PluginUntrusted, "expired on"},
		{"a first-party plugin's name", func(b *bench) {
			b.publish(b.plugin(edited(manifestText, "name: echo", "name: universal")))
		}, contract.PluginUntrusted, "which is the name of a first-party one"},
		{"digest mismatch", func(b *bench) { b.spoil(func(data []byte) []byte { data[len(data)/2] ^= 1; return data }) }, contract.PluginUntrusted, "has the digest"},
		{"truncated archive", func(b *bench) { b.spoil(func(data []byte) []byte { return data[:len(data)-100] }) }, contract.PluginUntrusted, "ends before its"},
		{"longer archive", func(b *bench) { b.spoil(func(data []byte) []byte { return append(data, 0) }) }, contract.PluginUntrusted, "has more than"},
		{"archive cut off by its publisher", func(b *bench) {
			data := b.archive()
			b.place(data[:len(data)/2], 10_000)
		}, contract.PluginUntrusted, "is cut off"},
		{"no archive at all", func(b *bench) { b.place([]byte("hello"), 10) }, contract.PluginUntrusted, "is cut off"},
		{"path traversal", func(b *bench) {
			b.craft(append(b.sound(manifestText), entry{name: "../../escaped", text: "x", mode: 0o644})...)
		}, contract.PluginUntrusted, `"../../escaped" leaves the folder`},
		{"absolute path", func(b *bench) {
			b.craft(append(b.sound(manifestText), entry{name: "/tmp/escaped", text: "x", mode: 0o644})...)
		}, contract.PluginUntrusted, `"/tmp/escaped" leaves the folder`},
		{"bomb", func(b *bench) {
			b.craft(append(b.sound(manifestText), entry{name: "zeros", text: strings.Repeat("\x00", 64<<20), mode: 0o644})...)
			b.resign(func(x *index.Index) { x.Plugins["echo"].Versions[0].Platforms[0].Unpacked = 10_000 })
		}, contract.PluginUntrusted, "unpacks to more than the 10000 bytes"},
		{"symlink out", func(b *bench) {
			b.craft(append(b.sound(manifestText), entry{name: "lib", link: "/etc", kind: tar.TypeSymlink})...)
		}, contract.PluginUntrusted, `"lib" is a link to "/etc"`},
		{"hard link out", func(b *bench) {
			b.craft(append(b.sound(manifestText), entry{name: "lib", link: "../../lock", kind: tar.TypeLink})...)
		}, contract.PluginUntrusted, `"lib" is a link`},
		{"device", func(b *bench) {
			b.craft(append(b.sound(manifestText), entry{name: "null", kind: tar.TypeChar})...)
		}, contract.PluginUntrusted, "neither file nor folder"},
		{"a file twice", func(b *bench) {
			b.craft(append(b.sound(manifestText), entry{name: "clade-echo", text: "other", mode: 0o755})...)
		}, contract.PluginUntrusted, "clade-echo"},
		{"url out of the source", func(b *bench) {
			require.NoError(b.t, os.WriteFile(filepath.Join(b.work, "secret"), b.archive(), 0o600))
			b.resign(func(x *index.Index) { x.Plugins["echo"].Versions[0].Platforms[0].URLs = []string{"../secret"} })
		}, contract.PluginUntrusted, "cannot be opened in"},
		{"url of another kind", func(b *bench) {
			b.resign(func(x *index.Index) { x.Plugins["echo"].Versions[0].Platforms[0].URLs = []string{"file:///etc/passwd"} })
		}, contract.PluginUntrusted, "may name relative, https:// and oci:// urls only"},
		{"wrong platform", func(b *bench) {
			b.resign(func(x *index.Index) { x.Plugins["echo"].Versions[0].Platforms[0].OS = "plan9" })
		}, contract.PluginMismatch, "has no archive for"},
		{"another platform's program under this one's name", func(b *bench) {
			b.craft(entry{name: "plugin.yaml", text: manifestText, mode: 0o644}, entry{name: "clade-echo", text: "\x7fELF of another machine", mode: 0o755})
		}, contract.PluginMismatch, "describe:"},
		{"wrong contract", func(b *bench) {
			require.NoError(b.t, os.RemoveAll(b.dir))
			b.resignWith(edited(manifestText, "contract: [1]", "contract: [7]"))
		}, contract.PluginMismatch, "speaks contract versions [7], this host speaks 1"},
		{"wrong runtime", func(b *bench) {
			b.publish(b.plugin(edited(manifestText, "0.32.2", "0.99.0")))
		}, contract.PluginMismatch, "works with the runtime MLX 0.99.0, mlx-c 0.6.0; the source has MLX 0.32.2 with mlx-c 0.6.0 (cpu)"},
		{"runtime that is not what the index says", func(b *bench) {
			b.resign(func(x *index.Index) {
				x.Runtimes[0].MLXC = "0.6.0"
				x.Runtimes[0].MLX = "0.32.2"
				x.Runtimes[0].Unpacked++
			})
		}, contract.PluginUntrusted, "announced were"},
		{"manifest that differs from what the binary says", func(b *bench) {
			b.craft(entry{name: "plugin.yaml", text: manifestText, mode: 0o644},
				entry{name: "clade-echo", text: describing(b.t, edited(manifestText, "label: echo", "label: other")), mode: 0o755})
		}, contract.PluginMismatch, "was built with another plugin.yaml"},
		{"manifest that differs from the index", func(b *bench) {
			b.craft(b.sound(edited(manifestText, "label: echo", "label: other"))...)
		}, contract.PluginMismatch, "its plugin.yaml is not the one that the index has"},
		{"graph id already taken", func(b *bench) {
			other, err := family.ParseManifest([]byte(edited(manifestText, "name: echo", "name: another", "value: echo", "value: another", "[echo]", "[another]")))
			require.NoError(b.t, err)
			b.Offers = append(b.Offers, corefamily.Offer{Manifest: other, Source: corefamily.FromInstalled})
		}, contract.PluginMismatch, "plugin another has this graph id"},
		{"store writable by others", func(b *bench) {
			require.NoError(b.t, os.MkdirAll(b.Store.Dir, 0o755))
			require.NoError(b.t, os.Chmod(b.Store.Dir, 0o777))
		}, contract.PluginUntrusted, "others may write the plugin store"},
		{"trust file writable by others", func(b *bench) {
			require.NoError(b.t, os.Chmod(b.Trust.Path, 0o666))
		}, contract.PluginUntrusted, "others may write it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := published(t)
			c.attack(b)
			err := b.try()
			require.Error(t, err)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.kind.String(), contract.KindOf(err).String(), err)
			require.NotContains(t, err.Error(), "\n")
			require.NoFileExists(t, filepath.Join(b.work, "escaped"))
			b.untouched()
		})
	}
}

// archive is echo's, as published.
func (b *bench) archive() []byte {
	b.t.Helper()
	found, err := filepath.Glob(filepath.Join(b.dir, "archives", "echo-*.tar.gz"))
	require.NoError(b.t, err)
	require.Len(b.t, found, 1)
	data, err := os.ReadFile(found[0])
	require.NoError(b.t, err)
	return data
}

// spoil changes the archive behind the index's back.
func (b *bench) spoil(change func([]byte) []byte) {
	b.t.Helper()
	found, err := filepath.Glob(filepath.Join(b.dir, "archives", "echo-*.tar.gz"))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(found[0], change(b.archive()), 0o644))
}

// resignWith publishes echo and then lets the index have another manifest, as no builder of ours would.
func (b *bench) resignWith(manifest string) {
	b.t.Helper()
	b.publish(b.plugin(manifestText), b.runtime("0.32.2"))
	m, err := family.ParseManifest([]byte(manifest))
	require.NoError(b.t, err)
	b.resign(func(x *index.Index) { x.Plugins["echo"].Versions[0].Manifest = []byte(m.JSON()) })
}

// An index that is held back is refused once a newer one was seen, and so is another one with the same serial.
func TestAnOlderIndexIsRefused(t *testing.T) {
	b := published(t)
	old := map[string][]byte{}
	for _, name := range []string{index.File, index.Signature} {
		data, err := os.ReadFile(filepath.Join(b.dir, name))
		require.NoError(t, err)
		old[name] = data
	}
	b.resign(func(*index.Index) {})
	require.NoError(t, b.try())
	for name, data := range old {
		require.NoError(t, os.WriteFile(filepath.Join(b.dir, name), data, 0o644))
	}
	err := b.try()
	require.Equal(t, contract.PluginUntrusted, contract.KindOf(err))
	require.ErrorContains(t, err, "an old index is offered as the present one")
	b.works()

	b.resign(func(x *index.Index) { x.Created = x.Created.Add(time.Second) }) // the serial that was seen, another content
	require.ErrorContains(t, b.try(), "again with another content")
	b.works()
}

// What changed after the installation never starts: program, own library, manifest, runtime.
func TestABinaryChangedAfterTheInstallationIsRefused(t *testing.T) {
	for name, says := range map[string]string{
		"clade-echo": "differs from the one that its receipt states", "lib/libown.so": "differs from the one that its receipt states",
		"mlx/lib/libmlx.so": "differs from the one that runtime.json states", "plugin.yaml": "differs from the one that its receipt states",
	} {
		t.Run(name, func(t *testing.T) {
			b := published(t)
			require.NoError(t, b.try())
			found := b.left("sha256-*/" + name)
			require.Len(t, found, 1)
			data, err := os.ReadFile(found[0])
			require.NoError(t, err)
			require.NoError(t, os.Chmod(found[0], 0o755))
			data[len(data)-2] ^= 1
			require.NoError(t, os.WriteFile(found[0], data, 0o755))
			in, err := b.set().Find("echo")
			if err == nil {
				err = (&plugins.Verifier{}).Verify(in)
			}
			require.Equal(t, contract.PluginUntrusted, contract.KindOf(err))
			require.ErrorContains(t, err, says)
		})
	}
}

// A host whose store others may write finds nothing in it.
func TestAStoreThatOthersMayWriteIsNotUsed(t *testing.T) {
	b := published(t)
	require.NoError(t, b.try())
	require.NoError(t, os.Chmod(b.Store.Dir, 0o775))
	set := b.set()
	require.Empty(t, set.Plugins)
	require.Len(t, set.Problems, 1)
	require.ErrorContains(t, set.Problems[0].Err, "others may write the plugin store")
}
