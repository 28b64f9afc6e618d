package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rustMinor is the least 1.x of rustc that compiles what native/guidance/Cargo.lock pins.
const rustMinor = 87

// guidanceManifest is the crate's; the digest of its folder, lock file included, is what the library is made for.
func (s *setup) guidanceManifest() string {
	return filepath.Join(s.root, "native", "guidance", "Cargo.toml")
}

// guidanceKey digests what determines the built libguidance; "" for a runtime without one.
func (s *setup) guidanceKey(r runtimeSpec) (string, error) {
	if r.LibGuidance == "" {
		return "", nil
	}
	source, err := treeDigest(filepath.Dir(s.guidanceManifest()))
	if err != nil {
		return "", err
	}
	return textDigest("guidance 1", source, r.OS, r.Arch), nil
}

// guidance makes libguidance and returns the folder with it and its licences, "" for a runtime without one.
func (s *setup) guidance(ctx context.Context, r runtimeSpec) (string, error) {
	key, err := s.guidanceKey(r)
	if err != nil || key == "" {
		return "", err
	}
	return s.step("guidance-"+r.OS+"-"+r.Arch, key, func(tmp string) error {
		if err := s.needRust(ctx); err != nil {
			return err
		}
		s.note("building libguidance, about a minute")
		target := filepath.Join(tmp, "target")
		args := []string{"build", "--release", "--locked", "--quiet", "--manifest-path", s.guidanceManifest(), "--target-dir", target, "--config", s.rustFlags()}
		if err := s.command(ctx, tmp, "cargo", args...); err != nil {
			return err
		}
		lib := filepath.Base(r.LibGuidance)
		if err := os.Rename(filepath.Join(target, "release", lib), filepath.Join(tmp, lib)); err != nil {
			return fmt.Errorf("the build made no %s: %w", lib, err)
		}
		if err := s.crateLicences(ctx, filepath.Join(tmp, "licences")); err != nil {
			return err
		}
		return os.RemoveAll(target)
	})
}

// rustFlags keeps the builder's folders out of the library, and gives a Mach-O library a name that can be moved.
func (s *setup) rustFlags() string {
	home := s.getenv("CARGO_HOME")
	if home == "" {
		home = filepath.Join(s.getenv("HOME"), ".cargo")
	}
	flags := []string{"--remap-path-prefix=" + home + "=cargo", "--remap-path-prefix=" + s.root + "=clade"}
	if s.os == "darwin" {
		flags = append(flags, "-Clink-arg=-Wl,-install_name,@rpath/libguidance.dylib")
	}
	quoted, _ := json.Marshal(flags) // a list of texts is the same in JSON and in TOML
	return "build.rustflags=" + string(quoted)
}

// needRust asks for cargo and for a rustc that is new enough; distributions' own often is not.
func (s *setup) needRust(ctx context.Context) error {
	if err := s.need(toolCargo); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "rustc", "--version").Output()
	m := regexp.MustCompile(`^rustc 1\.(\d+)\.`).FindSubmatch(out)
	if err != nil || m == nil {
		return errors.New("rustc is needed and was not found: on Debian: apt-get install rustc, or the newer one of rustup")
	}
	if minor, _ := strconv.Atoi(string(m[1])); minor < rustMinor {
		return fmt.Errorf("rustc 1.%d or later is needed and this is %s: with rustup: rustup update stable", rustMinor, strings.TrimSpace(string(out)))
	}
	return nil
}

// freeLicences are the terms, one of which every linked crate has to offer.
var freeLicences = []string{"MIT", "MIT-0", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "Zlib", "ISC", "Unlicense"}

// crateGraph is the part of `cargo metadata` that is read here.
type crateGraph struct {
	Packages []crate `json:"packages"`
	Resolve  struct {
		Root  string `json:"root"`
		Nodes []struct {
			ID   string `json:"id"`
			Deps []struct {
				Package string `json:"pkg"`
				Kinds   []struct {
					Kind *string `json:"kind"` // null: linked; "build", "dev": not
				} `json:"dep_kinds"`
			} `json:"deps"`
		} `json:"nodes"`
	} `json:"resolve"`
}

type crate struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Version  string `json:"version"`
	Licence  string `json:"license"`
	Manifest string `json:"manifest_path"`
	Targets  []struct {
		Kind []string `json:"kind"`
	} `json:"targets"`
}

// linked lists the crates whose code is in the library: the root's closure without build tools and procedural macros.
func (g *crateGraph) linked() []crate {
	packages, deps := map[string]crate{}, map[string][]string{}
	for _, p := range g.Packages {
		packages[p.ID] = p
	}
	for _, n := range g.Resolve.Nodes {
		for _, d := range n.Deps {
			for _, k := range d.Kinds {
				if k.Kind == nil {
					deps[n.ID] = append(deps[n.ID], d.Package)
				}
			}
		}
	}
	var out []crate
	seen := map[string]bool{}
	var walk func(id string)
	walk = func(id string) {
		p, known := packages[id]
		macro := slices.ContainsFunc(p.Targets, func(t struct {
			Kind []string `json:"kind"`
		},
		) bool {
			return slices.Contains(t.Kind, "proc-macro")
		})
		if !known || seen[id] || macro {
			return
		}
		seen[id] = true
		if id != g.Resolve.Root {
			out = append(out, p)
		}
		for _, d := range deps[id] {
			walk(d)
		}
	}
	walk(g.Resolve.Root)
	return out
}

// crateLicences copies the licence texts of every linked crate, and refuses a crate that offers no free licence.
func (s *setup) crateLicences(ctx context.Context, dest string) error {
	cmd := exec.CommandContext(ctx, "cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", s.guidanceManifest(),
		"--filter-platform", rustTriple(s.os, s.arch))
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("cargo metadata: %w", err)
	}
	var graph crateGraph
	if err := json.Unmarshal(out, &graph); err != nil {
		return fmt.Errorf("cargo metadata: %w", err)
	}
	for _, c := range graph.linked() {
		if !freeLicence(c.Licence) {
			return fmt.Errorf("crate %s %s: its licence %q is none of %s", c.Name, c.Version, c.Licence, strings.Join(freeLicences, ", "))
		}
		texts, err := licenceTexts(filepath.Dir(c.Manifest))
		if err != nil {
			return err
		}
		if len(texts) == 0 {
			return fmt.Errorf("crate %s %s: no licence text in it", c.Name, c.Version)
		}
		for _, path := range texts {
			name := c.Name + "-" + c.Version + "-" + filepath.Base(path)
			if filepath.Ext(path) == "" {
				name += ".txt"
			}
			if err := copyFile(path, filepath.Join(dest, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func licenceTexts(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		for _, start := range []string{"LICEN", "UNLICEN", "COPYING", "NOTICE", "COPYRIGHT"} {
			if strings.HasPrefix(name, start) && e.Type().IsRegular() {
				out = append(out, filepath.Join(dir, e.Name()))
				break
			}
		}
	}
	return out, nil
}

// freeLicence tells whether an SPDX expression of alternatives offers one of ours; "and" asks for all its parts. One with
// parentheses is for a person to read first.
func freeLicence(expression string) bool {
	if strings.ContainsAny(expression, "()") {
		return false
	}
	return slices.ContainsFunc(strings.Split(strings.ReplaceAll(expression, "/", " OR "), " OR "), func(one string) bool {
		for part := range strings.SplitSeq(strings.TrimSpace(one), " AND ") {
			if !slices.Contains(freeLicences, strings.TrimSpace(part)) {
				return false
			}
		}
		return true
	})
}

// rustTriple is Rust's name of a platform.
func rustTriple(goos, arch string) string {
	cpu := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	if goos == "darwin" {
		return cpu + "-apple-darwin"
	}
	return cpu + "-unknown-linux-gnu"
}
