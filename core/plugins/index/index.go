package index

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/clademl/clade/sdk/family"
)

// The files of a source.
const (
	File      = "index.v1.json"
	Signature = File + ".minisig"
)

// Limits of what is downloaded before it is trusted, in bytes.
const (
	MaxBytes          = 16 << 20
	MaxSignatureBytes = 4 << 10
)

// Schema is the version of the format.
const Schema = 1

// JSONSchema is index.v1.schema.json (JSON Schema 2020-12).
//
//go:embed index.v1.schema.json
var JSONSchema []byte

// Index is what a source offers.
type Index struct {
	Schema int `json:"schema"`
	// Name is the source's: plugins of another source than FirstParty are called NAME/PLUGIN.
	Name string `json:"name"`
	// Serial grows with every change.
	Serial  uint64    `json:"serial"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	// Keys are the minisign public keys that may sign the next index.
	Keys []string `json:"keys"`
	// Throwaway marks an index of a key that nobody guards; a release of the host refuses it.
	Throwaway bool               `json:"throwaway,omitempty"`
	Plugins   map[string]*Plugin `json:"plugins"`
	Runtimes  []Runtime          `json:"runtimes"`
}

// FirstParty is the name of the source whose plugins have no prefix, and the only one that may offer first-party plugins.
const FirstParty = "clade"

// Plugin is every version of one plugin, newest first.
type Plugin struct {
	Versions []Version `json:"versions"`
}

// Version is one version of a plugin.
type Version struct {
	Version string `json:"version"`
	// Manifest is its plugin.yaml, canonical.
	Manifest json.RawMessage `json:"manifest"`
	// Platforms are its archives.
	Platforms []Archive `json:"platforms"`

	manifest *family.Manifest
}

// Runtime is a build of the native libraries for one platform and variant.
type Runtime struct {
	MLX  string `json:"mlx"`
	MLXC string `json:"mlxc"`
	Archive
}

// Archive is one file that can be downloaded, for one platform.
type Archive struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	// Variant is the runtime's: cpu, cuda13, metal. An empty one of a plugin's archive goes with every runtime.
	Variant string `json:"variant,omitempty"`
	// URLs are tried in turn. A relative one is relative to the index. OCI sources go by the digest.
	URLs []string `json:"urls"`
	// Size is the archive's, Unpacked the sum of its files, both in bytes.
	Size     int64  `json:"size"`
	Unpacked int64  `json:"unpacked"`
	SHA256   string `json:"sha256"`
}

// Platform is how lists name where an archive runs.
func (a Archive) Platform() string {
	if a.Variant == "" {
		return a.OS + "/" + a.Arch
	}
	return a.OS + "/" + a.Arch + "/" + a.Variant
}

// Parsed is the version's manifest; nil before Parse.
func (v *Version) Parsed() *family.Manifest { return v.manifest }

// namePattern is a plugin's name, sourcePattern a source's: a domain, or one word.
var (
	namePattern   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
	sourcePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,126}[a-z0-9])?$`)
	digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
	wordPattern   = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)
)

// IsSourceName says whether a source may be called so.
func IsSourceName(s string) bool { return sourcePattern.MatchString(s) && !strings.Contains(s, "..") }

// Parse reads an index strictly: a field that is not understood may be one that limits what is offered.
func Parse(data []byte) (*Index, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	x := &Index{}
	if err := d.Decode(x); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one value")
	}
	return x, x.check()
}

func (x *Index) check() error {
	switch {
	case x.Schema != Schema:
		return fmt.Errorf("schema is %d, this host reads %d", x.Schema, Schema)
	case !IsSourceName(x.Name):
		return fmt.Errorf("name %q is no source's", x.Name)
	case x.Serial == 0 || x.Expires.IsZero():
		return errors.New("serial or expires is missing")
	case len(x.Keys) == 0:
		return errors.New("keys is empty, so nobody could sign the next")
	}
	for _, k := range x.Keys {
		if _, err := ParseKey(k); err != nil {
			return fmt.Errorf("keys: %w", err)
		}
	}
	for name, p := range x.Plugins {
		if p == nil || len(p.Versions) == 0 || !namePattern.MatchString(name) {
			return fmt.Errorf("plugins: %q has no versions or is no name", name)
		}
		for i := range p.Versions {
			if err := p.Versions[i].check(name); err != nil {
				return fmt.Errorf("plugins: %s %s: %w", name, p.Versions[i].Version, err)
			}
		}
		slices.SortStableFunc(p.Versions, func(a, b Version) int { return compare(b.Version, a.Version) })
		for i := range len(p.Versions) - 1 {
			if compare(p.Versions[i].Version, p.Versions[i+1].Version) == 0 {
				return fmt.Errorf("plugins: %s %s is there twice", name, p.Versions[i].Version)
			}
		}
	}
	for _, r := range x.Runtimes {
		if r.MLX == "" || r.MLXC == "" || r.Variant == "" {
			return errors.New("runtimes: mlx, mlxc or variant is missing")
		}
		if err := r.check(); err != nil {
			return fmt.Errorf("runtimes: %s: %w", r.Platform(), err)
		}
	}
	return nil
}

func (v *Version) check(name string) (err error) {
	if v.manifest, err = family.ParseManifest(v.Manifest); err != nil {
		return err
	}
	if v.manifest.Name != name || v.manifest.Version != v.Version {
		return fmt.Errorf("its manifest is of %s %s", v.manifest.Name, v.manifest.Version)
	}
	seen := map[string]bool{}
	for _, a := range v.Platforms {
		if err := a.check(); err != nil {
			return fmt.Errorf("%s: %w", a.Platform(), err)
		}
		if seen[a.Platform()] {
			return fmt.Errorf("%s is there twice", a.Platform())
		}
		seen[a.Platform()] = true
	}
	return nil
}

func (a Archive) check() error {
	switch {
	case !wordPattern.MatchString(a.OS) || !wordPattern.MatchString(a.Arch) || a.Variant != "" && !wordPattern.MatchString(a.Variant):
		return errors.New("os, arch or variant is missing or malformed")
	case len(a.URLs) == 0:
		return errors.New("urls is empty")
	case a.Size <= 0 || a.Unpacked <= 0:
		return errors.New("size or unpacked is missing")
	case !digestPattern.MatchString(a.SHA256):
		return errors.New("sha256 is malformed")
	}
	return nil
}

// compare orders semantic versions; equal means the same version whatever the build.
func compare(a, b string) int { return semver.Compare("v"+a, "v"+b) }

// Archives lists every archive that the index names, each digest once.
func (x *Index) Archives() []Archive {
	var out []Archive
	seen := map[string]bool{}
	add := func(a Archive) {
		if !seen[a.SHA256] {
			seen[a.SHA256] = true
			out = append(out, a)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.Plugins)) {
		for _, v := range x.Plugins[name].Versions {
			for _, a := range v.Platforms {
				add(a)
			}
		}
	}
	for _, r := range x.Runtimes {
		add(r.Archive)
	}
	return out
}
