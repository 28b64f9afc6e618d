package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// The files of a plugin's folder.
const (
	manifestFile = "plugin.yaml"
	receiptFile  = "receipt.json"
)

// Installed is one plugin whose manifest matches its receipt. Its executable is not verified yet.
type Installed struct {
	Name     string
	Dir      string
	Exe      string
	Manifest *family.Manifest
	// Digest is the SHA-256, in hex, that the receipt states of the executable.
	Digest string
	Origin Origin
	// Source and Signer are where a plugin of the store came from; Runtime is what it runs with there, nil when it needs none.
	Source, Signer string
	Runtime        *Runtime
	// Archive is the digest that the store keeps it under.
	Archive string

	receipt receipt
}

// Origin is the kind of place that a plugin was found in.
type Origin string

// The places, the one that wins first: a build folder stands before what was installed.
const (
	Configured Origin = "configured folder"
	Beside     Origin = "beside clade"
	Stored     Origin = "store"
)

// Problem is a folder that looks like a plugin and cannot be used.
type Problem struct {
	Name string
	Dir  string
	Err  error
}

// Set is what the directories hold, sorted by name.
type Set struct {
	Dirs     []string
	Plugins  []Installed
	Problems []Problem
}

// Dirs is where built plugins are looked for: what was configured, then plugins/ beside the executable.
func Dirs(executable string, configured []string) []string {
	return append(slices.Clone(configured), filepath.Join(filepath.Dir(executable), "plugins"))
}

// Discover reads every directory, the last of which lies beside the executable. One that does not exist is empty; the first
// that has a name wins.
func Discover(dirs ...string) Set {
	set := Set{Dirs: slices.Clone(dirs)}
	seen := map[string]bool{}
	for i, dir := range dirs {
		origin := Configured
		if i == len(dirs)-1 {
			origin = Beside
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				set.Problems = append(set.Problems, Problem{Dir: dir, Err: contract.Errorf(contract.NotFound, dir, "%w", err)})
			}
			continue
		}
		for _, e := range entries {
			name, folder := e.Name(), filepath.Join(dir, e.Name())
			if seen[name] || strings.HasPrefix(name, ".") || !isDir(folder) {
				continue
			}
			seen[name] = true
			in, err := read(folder, name, dir)
			if in.Origin = origin; err != nil {
				set.Problems = append(set.Problems, Problem{Name: name, Dir: folder, Err: err})
				continue
			}
			set.Plugins = append(set.Plugins, in)
		}
	}
	set.sort()
	return set
}

func (set *Set) sort() {
	slices.SortFunc(set.Plugins, func(a, b Installed) int { return strings.Compare(a.Name, b.Name) })
}

// AddStore adds what the store has installed, under names that no folder has: sound or not, a folder stands before it.
func (set *Set) AddStore(s *store.Store) {
	defer set.sort()
	seen := map[string]bool{}
	for _, p := range set.Plugins {
		seen[p.Name] = true
	}
	for _, p := range set.Problems {
		seen[p.Name] = true
	}
	set.Dirs = append(set.Dirs, s.Dir)
	records, err := s.Installed()
	if err := errors.Join(err, s.Check()); err != nil {
		set.Problems = append(set.Problems, Problem{Dir: s.Dir, Err: firstOf(err)})
		return
	}
	for _, r := range records {
		if seen[r.Plugin] {
			continue
		}
		in, err := readStored(s, r)
		if err != nil {
			set.Problems = append(set.Problems, Problem{Name: r.Plugin, Dir: s.Folder(r.Digest), Err: err})
			continue
		}
		set.Plugins = append(set.Plugins, in)
	}
}

// firstOf is the first of joined errors: one line, with its Kind.
func firstOf(err error) error {
	var first *contract.Error
	if errors.As(err, &first) {
		return first
	}
	return err
}

func readStored(s *store.Store, r store.Record) (Installed, error) {
	in, err := read(s.Folder(r.Digest), r.Plugin, s.Dir)
	if err != nil {
		return in, err
	}
	in.Origin, in.Source, in.Signer, in.Archive = Stored, r.Source, r.Signer, r.Digest
	if r.Runtime == "" {
		return in, nil
	}
	in.Runtime, err = ReadRuntime(s.Folder(r.Runtime))
	if err == nil {
		err = in.Runtime.Fits(in.Manifest)
	}
	return in, err
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Find is the plugin with a name: its own problem when it has one, else PluginMissing.
func (s Set) Find(name string) (Installed, error) {
	for _, in := range s.Plugins {
		if in.Name == name {
			return in, nil
		}
	}
	for _, p := range s.Problems {
		if p.Name == name {
			return Installed{}, p.Err
		}
	}
	return Installed{}, contract.Errorf(contract.PluginMissing, name, "the plugin is not installed").
		WithNext("clade plugin install %s", name)
}

// read checks everything of a plugin but its executable's content.
func read(folder, name, dir string) (Installed, error) {
	in := Installed{Name: name, Dir: folder, Exe: filepath.Join(folder, exeName(name))}
	for _, path := range []string{dir, folder, filepath.Join(folder, manifestFile), filepath.Join(folder, receiptFile), in.Exe} {
		if err := guarded(path); err != nil {
			return in, err
		}
	}
	var err error
	if in.receipt, err = readReceipt(filepath.Join(folder, receiptFile)); err != nil {
		return in, err
	}
	data, err := readSmall(filepath.Join(folder, manifestFile))
	if err != nil {
		return in, err
	}
	if digest(data) != in.receipt.ManifestSHA256 {
		return in, contract.Errorf(contract.PluginUntrusted, filepath.Join(folder, manifestFile),
			"differs from the one that its receipt states").WithNext("build or install the plugin again")
	}
	if in.Manifest, err = family.ParseManifest(data); err != nil {
		return in, contract.Errorf(contract.PluginMismatch, folder, "%w", err)
	}
	in.Digest = in.receipt.ExeSHA256
	switch {
	case in.Manifest.Name != name || in.receipt.Name != name:
		return in, contract.Errorf(contract.PluginMismatch, folder, "holds the plugin %s with a receipt for %s",
			in.Manifest.Name, in.receipt.Name)
	case in.receipt.Version != in.Manifest.Version:
		return in, contract.Errorf(contract.PluginMismatch, folder, "is version %s with a receipt for %s",
			in.Manifest.Version, in.receipt.Version)
	case !slices.Contains(in.Manifest.Contract, contract.Major):
		return in, contract.Errorf(contract.PluginMismatch, folder, "speaks contract versions %v, this host speaks %d",
			in.Manifest.Contract, contract.Major).WithNext("install a version for this host")
	}
	return in, nil
}

func exeName(name string) string {
	if runtime.GOOS == "windows" {
		return "clade-" + name + ".exe"
	}
	return "clade-" + name
}

// guarded refuses what anyone on the machine may replace.
func guarded(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return contract.Errorf(contract.PluginMissing, path, "%w", err).WithNext("build or install the plugin again")
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o002 != 0 {
		return contract.Errorf(contract.PluginUntrusted, path, "anyone may write it (mode %#o)", info.Mode().Perm()).
			WithNext("chmod o-w it, after a look at what it holds")
	}
	return nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// CheckDescribe compares what a running plugin says of itself with its manifest.
func (in Installed) CheckDescribe(d *cladev1.DescribeResponse) error {
	said, err := family.ParseManifest([]byte(d.GetManifestJson()))
	if err != nil {
		return contract.Errorf(contract.PluginMismatch, in.Exe, "describes itself with a bad manifest: %w", err)
	}
	if d.GetName() != in.Name || d.GetVersion() != in.Manifest.Version || said.JSON() != in.Manifest.JSON() {
		return contract.Errorf(contract.PluginMismatch, in.Exe, "was built with another %s (it says %s %s)", manifestFile,
			d.GetName(), d.GetVersion()).WithNext("build or install the plugin again")
	}
	for _, t := range d.GetGraphTables() {
		if err := said.CheckTable(t); err != nil {
			return contract.Errorf(contract.PluginMismatch, in.Exe, "%w", err)
		}
	}
	if !slices.Contains(d.GetContractVersions(), contract.Major) {
		return contract.Errorf(contract.PluginMismatch, in.Exe, "speaks contract versions %v, this host speaks %d",
			d.GetContractVersions(), contract.Major)
	}
	return nil
}
