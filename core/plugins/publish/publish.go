package publish

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"aead.dev/minisign"

	"github.com/clademl/clade/core/plugins"
	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/sdk/contract"
)

// Options of one publication.
type Options struct {
	// Dir is the source's folder; an index that is there is added to.
	Dir string
	// Name is the source's; it may be empty when Dir has an index.
	Name string
	Key  minisign.PrivateKey
	// NextKeys may sign the next index too: give the new key here first, later sign with it and leave the old one away.
	NextKeys []string
	// Lifetime of the index.
	Lifetime time.Duration
	// Throwaway marks the index as one of a key that nobody guards.
	Throwaway bool
	// Replace allows other content for a version that is there.
	Replace bool
	// OS and Arch of plugins' folders; empty: this machine's, whose plugins are asked to describe themselves.
	OS, Arch string
	// Told hears what is done, one line a call; may be nil.
	Told func(format string, args ...any)
	Now  time.Time
}

const archives = "archives"

// Add packs plugin and runtime folders and signs the index of o.Dir anew. Nothing is written when nothing changed and the index
// lives for at least half its time.
func Add(o Options, folders []string) (*index.Index, error) {
	if o.Told == nil {
		o.Told = func(string, ...any) {}
	}
	if o.OS == "" {
		o.OS, o.Arch = runtime.GOOS, runtime.GOARCH
	}
	old, err := o.present()
	if err != nil {
		return nil, err
	}
	next, err := o.begin(old)
	if err != nil {
		return nil, err
	}
	packed := readPacked(o.Dir)
	for _, folder := range folders {
		if err := o.add(next, packed, folder); err != nil {
			return nil, err
		}
	}
	if old != nil && same(old, next) && old.Expires.Sub(o.Now) > o.Lifetime/2 {
		return old, nil
	}
	if err := packed.write(o.Dir); err != nil {
		return nil, err
	}
	return next, o.sign(next)
}

// present is the index that the folder has; nil when it has none.
func (o *Options) present() (*index.Index, error) {
	data, err := os.ReadFile(filepath.Join(o.Dir, index.File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, contract.Errorf(contract.NotFound, o.Dir, "%w", err)
	}
	x, err := index.Parse(data)
	if err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, filepath.Join(o.Dir, index.File), "%w", err)
	}
	return x, nil
}

// begin is the next index before anything is added to it.
func (o *Options) begin(old *index.Index) (*index.Index, error) {
	public, ok := o.Key.Public().(minisign.PublicKey)
	if !ok {
		return nil, contract.Errorf(contract.Internal, "key", "has no public half")
	}
	// Seconds: a folder that was made anew goes on above what hosts have seen.
	x := &index.Index{
		Schema: index.Schema, Name: o.Name, Serial: uint64(o.Now.Unix()), Created: o.Now.UTC().Truncate(time.Second),
		Expires: o.Now.Add(o.Lifetime).UTC().Truncate(time.Second), Throwaway: o.Throwaway, Plugins: map[string]*index.Plugin{}, Runtimes: []index.Runtime{},
	}
	for _, k := range append([]string{public.String()}, o.NextKeys...) {
		key, err := index.ParseKey(k)
		if err != nil {
			return nil, contract.Errorf(contract.InvalidArgument, "next key", "%w", err)
		}
		x.Keys = append(x.Keys, key.String())
	}
	if old != nil {
		if x.Name == "" {
			x.Name = old.Name
		}
		if x.Name != old.Name {
			return nil, contract.Errorf(contract.InvalidArgument, o.Dir, "is the source %s", old.Name)
		}
		x.Serial = max(x.Serial, old.Serial+1)
		x.Runtimes = slices.Clone(old.Runtimes)
		for name, p := range old.Plugins {
			x.Plugins[name] = &index.Plugin{Versions: slices.Clone(p.Versions)}
		}
	}
	if !index.IsSourceName(x.Name) {
		return nil, contract.Errorf(contract.InvalidArgument, "name", "%q is no name of a source", x.Name).WithNext("give it one with --name example.org")
	}
	return x, nil
}

// same says whether two indexes offer the same.
func same(a, b *index.Index) bool {
	text := func(x *index.Index) string {
		c := *x
		c.Serial, c.Created, c.Expires = 0, time.Time{}, time.Time{}
		data, err := json.Marshal(c)
		return string(data) + fmt.Sprint(err)
	}
	return text(a) == text(b)
}

// sign writes the index and its signature, and drops archives that it no longer names.
func (o *Options) sign(x *index.Index) error {
	raw, err := json.MarshalIndent(x, "", "  ")
	if err == nil {
		raw = append(raw, '\n')
		_, err = index.Parse(raw) // nobody could use one that does not parse
	}
	if err != nil {
		return contract.Errorf(contract.InvalidArgument, o.Dir, "%w", err)
	}
	for name, data := range map[string][]byte{index.File: raw, index.Signature: index.Sign(o.Key, raw, x)} {
		if err := store.Replace(filepath.Join(o.Dir, name), data); err != nil {
			return contract.Errorf(contract.Unavailable, o.Dir, "%w", err)
		}
	}
	o.Told("%s: index %s, serial %d, expires %s, key %s", o.Dir, x.Name, x.Serial, x.Expires.Format(time.DateOnly), index.KeyID(o.Key.ID()))
	named := map[string]bool{}
	for _, a := range x.Archives() {
		named[a.URLs[0]] = true
	}
	entries, err := os.ReadDir(filepath.Join(o.Dir, archives))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return contract.Errorf(contract.Unavailable, o.Dir, "%w", err)
	}
	for _, e := range entries {
		if name := archives + "/" + e.Name(); strings.HasSuffix(name, suffix) && !named[name] {
			if err := os.Remove(filepath.Join(o.Dir, filepath.FromSlash(name))); err != nil {
				return contract.Errorf(contract.Unavailable, o.Dir, "%w", err)
			}
		}
	}
	return nil
}

// add packs one folder into the index.
func (o *Options) add(x *index.Index, packed packedFiles, folder string) error {
	if _, err := os.Stat(filepath.Join(folder, "runtime.json")); err == nil {
		return o.addRuntime(x, packed, folder)
	}
	m, err := plugins.ManifestOf(folder)
	if err != nil {
		return err
	}
	if err := licensed(folder); err != nil {
		return err
	}
	if o.OS == runtime.GOOS && o.Arch == runtime.GOARCH {
		if err := plugins.Seal(folder); err != nil {
			return err
		}
	} else {
		o.Told("%s is for %s/%s and cannot be asked here what it is", m.Name, o.OS, o.Arch)
	}
	a, err := o.pack(packed, folder, index.Archive{OS: o.OS, Arch: o.Arch}, m.Name+"-"+m.Version)
	if err != nil {
		return err
	}
	p := x.Plugins[m.Name]
	if p == nil {
		p = &index.Plugin{}
		x.Plugins[m.Name] = p
	}
	i := slices.IndexFunc(p.Versions, func(v index.Version) bool { return v.Version == m.Version })
	if i < 0 {
		p.Versions = append(p.Versions, index.Version{Version: m.Version, Manifest: json.RawMessage(m.JSON())})
		i = len(p.Versions) - 1
	}
	v := &p.Versions[i]
	subject := m.Name + " " + m.Version
	if manifestText(v) != m.JSON() {
		if !o.Replace {
			return contract.Errorf(contract.InvalidArgument, subject, "is published with another plugin.yaml").WithNext("raise its version")
		}
		v.Manifest, v.Platforms = json.RawMessage(m.JSON()), nil
	}
	v.Platforms = slices.Clone(v.Platforms)
	at := slices.IndexFunc(v.Platforms, func(have index.Archive) bool { return have.Platform() == a.Platform() })
	switch {
	case at < 0:
		v.Platforms = append(v.Platforms, a)
	case v.Platforms[at].SHA256 == a.SHA256:
	case o.Replace:
		v.Platforms[at] = a
	default:
		return contract.Errorf(contract.InvalidArgument, subject, "is published for %s with another content", a.Platform()).WithNext("raise its version")
	}
	return nil
}

// manifestText is a version's manifest in its canonical form.
func manifestText(v *index.Version) string {
	if m := v.Parsed(); m != nil {
		return m.JSON()
	}
	return string(v.Manifest)
}

func (o *Options) addRuntime(x *index.Index, packed packedFiles, folder string) error {
	r, err := plugins.ReadRuntime(folder)
	if err != nil {
		return err
	}
	next := index.Runtime{MLX: r.MLX, MLXC: r.MLXC, Archive: index.Archive{OS: r.OS, Arch: r.Arch, Variant: r.Variant}}
	if next.Archive, err = o.pack(packed, folder, next.Archive, "runtime-"+r.MLX+"-"+r.MLXC); err != nil {
		return err
	}
	i := slices.IndexFunc(x.Runtimes, func(have index.Runtime) bool {
		return have.Platform() == next.Platform() && have.MLX == next.MLX && have.MLXC == next.MLXC
	})
	switch {
	case i < 0:
		x.Runtimes = append(x.Runtimes, next)
	case x.Runtimes[i].SHA256 == next.SHA256:
	case o.Replace:
		x.Runtimes[i] = next
	default:
		return contract.Errorf(contract.InvalidArgument, "runtime "+r.Variant, "MLX %s with mlx-c %s is published with another content", r.MLX, r.MLXC).
			WithNext("publish it with --replace; plugins that are installed keep the old one")
	}
	return nil
}

// licensed refuses a plugin without the licences of what is in it.
func licensed(folder string) error {
	for _, pattern := range []string{"LICEN*", "licences/*", "licenses/*"} {
		if found, err := filepath.Glob(filepath.Join(folder, pattern)); err == nil && len(found) > 0 {
			return nil
		}
	}
	return contract.Errorf(contract.InvalidArgument, folder, "holds no licence").WithNext("put its LICENSE, and those of what it links, into the folder")
}
