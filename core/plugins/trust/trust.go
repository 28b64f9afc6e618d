package trust

import (
	"bytes"
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

	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/sdk/contract"
)

// roots are the sources that a build trusts, as "NAME LOCATION KEY" separated by semicolons; set by the linker.
var roots string

// Source is a trusted source.
type Source struct {
	Name string `json:"name"`
	// Location is where it is (core/plugins/source); empty: only bundles of it are installed.
	Location string `json:"location,omitempty"`
	// Keys are the minisign public keys that it was added with.
	Keys []string `json:"keys"`
	// Root says that the build brought it.
	Root bool `json:"-"`
}

// File is trust.json.
type File struct {
	// Path of the file, which need not exist.
	Path string
	// Store keeps what was seen of each source.
	Store *store.Store
}

type document struct {
	Schema  int      `json:"schema"`
	Sources []Source `json:"sources"`
}

// Sources lists the trusted sources: those of the build first, then those that were added, in their order. An added one with a
// root's name moves that root to another place.
func (f *File) Sources() ([]Source, error) {
	out, err := rootSources(roots)
	if err != nil {
		return nil, err
	}
	added, err := f.added()
	if err != nil {
		return nil, err
	}
	for _, s := range added {
		if i := slices.IndexFunc(out, func(o Source) bool { return o.Name == s.Name }); i >= 0 {
			out[i].Location = s.Location
			continue
		}
		out = append(out, s)
	}
	return out, nil
}

func rootSources(text string) ([]Source, error) {
	var out []Source
	for entry := range strings.SplitSeq(text, ";") {
		f := strings.Fields(entry)
		if len(f) == 0 {
			continue
		}
		if len(f) != 3 {
			return nil, contract.Errorf(contract.Internal, "roots", "want NAME LOCATION KEY, the build has %q", entry)
		}
		if _, err := index.ParseKey(f[2]); err != nil || !index.IsSourceName(f[0]) {
			return nil, contract.Errorf(contract.Internal, "roots", "the build has a bad name or key: %q", entry)
		}
		out = append(out, Source{Name: f[0], Location: f[1], Keys: []string{f[2]}, Root: true})
	}
	return out, nil
}

// Find is the trusted source with a name.
func (f *File) Find(name string) (Source, error) {
	all, err := f.Sources()
	if err != nil {
		return Source{}, err
	}
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	return Source{}, contract.Errorf(contract.PluginUntrusted, name, "is no trusted source of plugins").WithNext("%s", HowToAdd)
}

// HowToAdd is the next step where no source is trusted.
const HowToAdd = "add one with `clade plugin trust add NAME KEY LOCATION` (a folder, https://... or oci://...)"

func (f *File) added() ([]Source, error) {
	data, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var doc document
	if err == nil {
		err = private(f.Path)
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&doc)
	}
	if err == nil && doc.Schema != 1 {
		err = fmt.Errorf("schema is %d, this host reads 1", doc.Schema)
	}
	for _, s := range doc.Sources {
		if err == nil {
			err = s.check()
		}
	}
	if err != nil {
		return nil, contract.Errorf(contract.PluginUntrusted, f.Path, "%w", err).WithNext("mend it, or remove it and add the sources again")
	}
	return doc.Sources, nil
}

// private refuses keys that others may have put there.
func private(path string) error {
	info, err := os.Stat(path)
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0 {
		err = fmt.Errorf("others may write it (mode %#o)", info.Mode().Perm())
	}
	return err
}

func (s Source) check() error {
	if !index.IsSourceName(s.Name) {
		return fmt.Errorf("%q is no name of a source; want a domain such as example.org", s.Name)
	}
	if len(s.Keys) == 0 {
		return fmt.Errorf("source %s has no key", s.Name)
	}
	for _, k := range s.Keys {
		if _, err := index.ParseKey(k); err != nil {
			return err
		}
	}
	return nil
}

// Add trusts a source, or gives one that is trusted another location or other keys; what was remembered of other keys is
// forgotten.
func (f *File) Add(s Source) error {
	if err := s.check(); err != nil {
		return contract.Errorf(contract.InvalidArgument, s.Name, "%w", err)
	}
	for i, k := range s.Keys { // a whole .pub file shrinks to its key
		key, _ := index.ParseKey(k)
		s.Keys[i] = key.String()
	}
	all, err := f.Sources()
	if err != nil {
		return err
	}
	for _, have := range all {
		switch {
		case have.Name != s.Name:
		case have.Root && !slices.Equal(have.Keys, s.Keys):
			return contract.Errorf(contract.PluginUntrusted, s.Name, "is built in with the key %s", index.KeyName(have.Keys[0])).
				WithNext("use that key to give it another location, or another name")
		case !slices.Equal(have.Keys, s.Keys):
			if err := f.forget(s.Name); err != nil {
				return err
			}
		}
	}
	added, err := f.added()
	if err != nil {
		return err
	}
	added = slices.DeleteFunc(added, func(o Source) bool { return o.Name == s.Name })
	return f.write(append(added, s))
}

// Remove trusts a source no longer, and forgets what was seen of it.
func (f *File) Remove(name string) error {
	added, err := f.added()
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(added), func(o Source) bool { return o.Name == name })
	if len(left) == len(added) {
		if s, err := f.Find(name); err == nil && s.Root {
			return contract.Errorf(contract.InvalidArgument, name, "is built in")
		}
		return contract.Errorf(contract.NotFound, name, "is no trusted source of plugins").WithNext("`clade plugin trust list`")
	}
	return errors.Join(f.forget(name), f.write(left))
}

func (f *File) write(sources []Source) error {
	data, err := json.MarshalIndent(document{1, sources}, "", "  ")
	if err == nil {
		err = store.Replace(f.Path, append(data, '\n'))
	}
	if err != nil {
		return contract.Errorf(contract.Unavailable, f.Path, "%w", err)
	}
	return nil
}

// seen is state.json of a source: what was accepted last.
type seen struct {
	Schema int    `json:"schema"`
	Serial uint64 `json:"serial"`
	SHA256 string `json:"sha256"`
	// Keys may sign the next index; SignedWith is the key that signed this one, which may hand over the signing.
	Keys       []string  `json:"keys"`
	SignedWith string    `json:"signed_with"`
	Time       time.Time `json:"time"`
}

const seenFile = "state.json"

func (f *File) seen(name string) (seen, error) {
	path := filepath.Join(f.Store.SourceDir(name), seenFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return seen{}, nil
	}
	var s seen
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil || s.Schema != 1 {
		return s, contract.Errorf(contract.PluginUntrusted, path, "cannot be read: %w", err).WithNext("`clade plugin trust remove %s` and add it again", name)
	}
	return s, nil
}

func (f *File) forget(name string) error {
	if err := os.RemoveAll(f.Store.SourceDir(name)); err != nil {
		return contract.Errorf(contract.Unavailable, name, "%w", err)
	}
	return nil
}

// Expect is what an index of the source is judged by.
func (f *File) Expect(s Source, now time.Time, release bool) (index.Expected, error) {
	e := index.Expected{Name: s.Name, Keys: s.Keys, Now: now, Release: release}
	was, err := f.seen(s.Name)
	if err != nil {
		return e, err
	}
	if len(was.Keys) > 0 {
		e.Keys, e.Serial, e.SHA256 = was.Keys, was.Serial, was.SHA256
	}
	return e, nil
}

// Accept remembers an index that was judged good. The caller holds the store's lock.
func (f *File) Accept(a index.Accepted, raw, signature []byte, now time.Time) error {
	state, err := json.MarshalIndent(seen{1, a.Serial, a.SHA256, a.Keys, a.Key, now.UTC()}, "", "  ")
	if err != nil {
		return contract.Errorf(contract.Internal, a.Name, "%w", err)
	}
	dir := f.Store.SourceDir(a.Name)
	// The state comes last: with it, the index beside it is the one that it speaks of, or is refused until the next refresh.
	for _, w := range []struct {
		name string
		data []byte
	}{{index.File, raw}, {index.Signature, signature}, {seenFile, append(state, '\n')}} {
		if err := store.Replace(filepath.Join(dir, w.name), w.data); err != nil {
			return contract.Errorf(contract.Unavailable, dir, "%w", err)
		}
		if err := f.Store.Step("index " + w.name); err != nil {
			return contract.Errorf(contract.Unavailable, dir, "%w", err)
		}
	}
	return nil
}

// Cached is the last accepted index of a source, verified anew; NotFound when there is none.
func (f *File) Cached(s Source, now time.Time, release bool) (index.Accepted, time.Time, error) {
	was, err := f.seen(s.Name)
	if err != nil {
		return index.Accepted{}, time.Time{}, err
	}
	dir := f.Store.SourceDir(s.Name)
	raw, err := os.ReadFile(filepath.Join(dir, index.File))
	if err != nil || was.SHA256 == "" {
		return index.Accepted{}, time.Time{}, contract.Errorf(contract.NotFound, s.Name, "its index was not fetched yet").WithNext("`clade plugin search` fetches it")
	}
	signature, err := os.ReadFile(filepath.Join(dir, index.Signature))
	if err != nil {
		return index.Accepted{}, time.Time{}, contract.Errorf(contract.NotFound, s.Name, "%w", err)
	}
	e := index.Expected{Name: s.Name, Keys: []string{was.SignedWith}, Serial: was.Serial, SHA256: was.SHA256, Now: now, Release: release}
	a, err := index.Read(raw, signature, filepath.Join(dir, index.File), e)
	return a, was.Time, err
}
