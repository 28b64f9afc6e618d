package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// record is runtime.json: what a plugin and the host need to know about a runtime.
type record struct {
	Variant   string            `json:"variant"`
	MLX       string            `json:"mlx"`
	MLXC      string            `json:"mlxc"`
	OS        string            `json:"os"`
	Arch      string            `json:"arch"`
	Libraries map[string]string `json:"libraries"`
	Files     []recordFile      `json:"files"`
	MLXCFrom  string            `json:"mlxc_from"` // "crate mlx-sys 0.6.0" or the installed file
	MadeFor   string            `json:"made_for"`  // digest of all that went into it
}

type recordFile struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// runtime makes bin/runtime/<variant>, or finds it made.
func (s *setup) runtime(ctx context.Context, variant string) error {
	r, err := s.versions.runtimeFor(variant, s.os, s.arch)
	if err != nil {
		return err
	}
	installed, err := s.installedMLXC(ctx, r)
	if err != nil {
		return err
	}
	key, from, err := s.inputs(r, installed)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.root, "bin", "runtime", variant)
	reason := s.stale(dir, key)
	if reason == "" {
		return nil
	}
	s.note("runtime %s: %s", variant, reason)
	if !r.Verified {
		s.note("the runtime %s for %s/%s has not been run by this project's own checks", variant, s.os, s.arch)
	}
	if err := s.prerequisites(ctx, r, installed != ""); err != nil {
		return err
	}
	wheels, err := s.unpacked(ctx, r)
	if err != nil {
		return err
	}
	mlxc := installed
	if installed == "" {
		built, err := s.build(ctx, r)
		if err != nil {
			return err
		}
		mlxc = filepath.Join(built, filepath.Base(r.LibMLXC))
	}
	rec := record{
		Variant: variant, MLX: s.versions.MLX, MLXC: s.versions.MLXC.Version, OS: s.os, Arch: s.arch,
		Libraries: map[string]string{"libmlx": r.LibMLX, "libmlxc": r.LibMLXC}, MLXCFrom: from, MadeFor: key,
	}
	built := map[string]string{r.LibMLXC: mlxc}
	if kernels, err := s.kernels(ctx, r); err != nil {
		return err
	} else if kernels != "" {
		built[r.LibKernels] = kernels
		rec.Libraries["libcladekernels"] = r.LibKernels
	}
	guidance, err := s.guidance(ctx, r)
	if err != nil {
		return err
	}
	if guidance != "" {
		built[r.LibGuidance] = filepath.Join(guidance, filepath.Base(r.LibGuidance))
		rec.Libraries["libguidance"] = r.LibGuidance
	}
	if err := s.install(r, rec, wheels, guidance, built, dir); err != nil {
		return err
	}
	s.note("runtime %s is ready in %s", variant, dir)
	return nil
}

// inputs digests all that determines a runtime's content.
func (s *setup) inputs(r runtimeSpec, installed string) (key, from string, err error) {
	const recipe = "1" // raise when install or build changes what it makes
	spec, err := json.Marshal(r)
	if err != nil {
		return "", "", err
	}
	licences, err := treeDigest(filepath.Join(s.root, "native", "licences"))
	if err != nil {
		return "", "", err
	}
	c := s.versions.MLXC
	from = "crate " + c.Crate + " " + c.CrateVersion
	mlxc := c.TreeSHA256 + strings.Join(s.cmakeFlags(), " ")
	if installed != "" {
		from = installed
		if mlxc, _, err = fileDigest(installed); err != nil {
			return "", "", err
		}
	}
	kernels, err := s.kernelsKey(r)
	if err != nil {
		return "", "", err
	}
	guidance, err := s.guidanceKey(r)
	if err != nil {
		return "", "", err
	}
	return textDigest(recipe, string(spec), licences, from, mlxc, kernels, guidance), from, nil
}

// stale says why a runtime has to be made, or "" if it is there and whole.
func (s *setup) stale(dir, key string) string {
	data, err := os.ReadFile(filepath.Join(dir, "runtime.json"))
	if err != nil {
		return "not there yet"
	}
	var rec record
	if err := json.Unmarshal(data, &rec); err != nil {
		return "its runtime.json does not parse"
	}
	if rec.MadeFor != key {
		return "made from other versions"
	}
	for _, f := range rec.Files {
		sum, _, err := fileDigest(filepath.Join(dir, filepath.FromSlash(f.Path)))
		if err != nil || sum != f.SHA256 {
			return f.Path + " is missing or changed"
		}
	}
	return ""
}

// prerequisites reports everything that is missing for the steps still to be done, before the first of them starts.
func (s *setup) prerequisites(ctx context.Context, r runtimeSpec, installed bool) error {
	made := func(name, key string) bool {
		have, err := os.ReadFile(filepath.Join(s.work, name, ".made-for"))
		return err == nil && string(have) == key
	}
	var errs []error
	for _, w := range r.Wheels {
		if err := w.pinned(); err != nil {
			errs = append(errs, err)
			continue
		}
		if _, err := os.Stat(filepath.Join(s.work, "wheels", w.File)); err != nil {
			errs = append(errs, s.needPip(ctx))
			break
		}
	}
	if !installed && !made("libmlxc-"+r.Variant, s.buildKey(r)) {
		if !made("mlx-c", s.versions.MLXC.TreeSHA256) {
			errs = append(errs, s.need(toolCargo))
		}
		errs = append(errs, s.need(toolCMake, toolMake, toolCC, toolCXX))
	} else if key, err := s.kernelsKey(r); err != nil {
		errs = append(errs, err)
	} else if key != "" && !made("kernels-"+r.Variant, key) {
		errs = append(errs, s.need(toolCMake, toolMake, toolCC, toolCXX))
	}
	if key, err := s.guidanceKey(r); err != nil {
		errs = append(errs, err)
	} else if key != "" && !made("guidance-"+r.OS+"-"+r.Arch, key) {
		errs = append(errs, s.needRust(ctx))
	}
	return flatten(errs)
}

// flatten joins errors into one list without nesting, so that each is printed on a line of its own.
func flatten(errs []error) error {
	var flat []error
	for _, err := range errs {
		var many interface{ Unwrap() []error }
		if errors.As(err, &many) {
			flat = append(flat, many.Unwrap()...)
		} else if err != nil {
			flat = append(flat, err)
		}
	}
	return errors.Join(flat...)
}

// install stages the runtime, with the libraries built here by their place in it, and swaps it in.
func (s *setup) install(r runtimeSpec, rec record, wheels, guidance string, built map[string]string, dir string) error {
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := copyLibraries(r, wheels, tmp); err != nil {
		return err
	}
	for place, lib := range built {
		if err := copyFile(lib, filepath.Join(tmp, filepath.FromSlash(place))); err != nil {
			return err
		}
	}
	if err := s.copyLicences(wheels, tmp); err != nil {
		return err
	}
	if guidance != "" {
		if err := os.CopyFS(filepath.Join(tmp, "licences", "libguidance"), os.DirFS(filepath.Join(guidance, "licences"))); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(tmp, filepath.FromSlash(r.LibMLX))); err != nil {
		return fmt.Errorf("the wheels hold no %s", r.LibMLX)
	}
	err := filepath.WalkDir(tmp, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(tmp, path)
		if err != nil {
			return err
		}
		sum, size, err := fileDigest(path)
		rec.Files = append(rec.Files, recordFile{filepath.ToSlash(rel), sum, size})
		return err
	})
	if err != nil {
		return err
	}
	sort.Slice(rec.Files, func(i, j int) bool { return rec.Files[i].Path < rec.Files[j].Path })
	data, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "runtime.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	return swap(tmp, dir)
}

// copyLibraries copies the shared libraries and metallibs of the kept folders, in the wheel's own layout: their
// relative search paths then hold without a patch to any file.
func copyLibraries(r runtimeSpec, wheels, to string) error {
	return filepath.WalkDir(wheels, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(wheels, path)
		if err != nil {
			return err
		}
		slash := filepath.ToSlash(rel)
		keep := false
		for _, prefix := range r.Keep {
			keep = keep || strings.HasPrefix(slash, prefix)
		}
		name := filepath.Base(slash)
		library := strings.HasSuffix(name, ".so") || strings.Contains(name, ".so.") || strings.HasSuffix(name, ".dylib") || strings.HasSuffix(name, ".metallib")
		if !keep || !library {
			return nil
		}
		return copyFile(path, filepath.Join(to, rel))
	})
}

// copyLicences puts every licence of what is in the runtime into licences/.
func (s *setup) copyLicences(wheels, to string) error {
	dest := filepath.Join(to, "licences")
	own, err := filepath.Glob(filepath.Join(s.root, "native", "licences", "*.txt"))
	if err != nil {
		return err
	}
	if len(own) == 0 {
		return errors.New("native/licences: no licence text in it")
	}
	for _, path := range own {
		if err := copyFile(path, filepath.Join(dest, filepath.Base(path))); err != nil {
			return err
		}
	}
	infos, err := filepath.Glob(filepath.Join(wheels, "*.dist-info"))
	if err != nil {
		return err
	}
	found := 0
	for _, info := range infos {
		err := filepath.WalkDir(info, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.Contains(strings.ToUpper(d.Name()), "LICEN") {
				return err
			}
			wheelName, _, _ := strings.Cut(filepath.Base(info), "-")
			name := wheelName + "-" + d.Name() + ".txt"
			if strings.HasPrefix(wheelName, "mlx") {
				name = "MLX.txt"
			}
			found++
			return copyFile(path, filepath.Join(dest, name))
		})
		if err != nil {
			return err
		}
	}
	if found == 0 {
		return errors.New("the wheels hold no licence file")
	}
	return nil
}

func copyFile(from, to string) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}
