package hub

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// Remove deletes a local model and returns the bytes that were freed. Of the Hugging Face cache only what no other snapshot
// needs goes. A model that was named by its path elsewhere is not touched: it is not in our care.
func (s Store) Remove(m Model) (int64, error) {
	switch m.Source {
	case SourceHF:
		return s.removeCached(m)
	case SourceFolder:
		return removeFolder(m)
	}
	for _, dir := range append(s.Dirs, s.hfRoot()) {
		if rel, err := filepath.Rel(dir, m.Path); dir != "" && err == nil && filepath.IsLocal(rel) && rel != "." {
			return 0, contract.Errorf(contract.InvalidArgument, m.Path, "is named by its path").WithNext("name it as `clade list` does")
		}
	}
	return 0, contract.Errorf(contract.InvalidArgument, m.Path, "lies outside the model folders").WithNext("delete it yourself if that is meant")
}

func removeFolder(m Model) (int64, error) {
	size := sizeOf(m.Path)
	if err := os.RemoveAll(m.Path); err != nil {
		return 0, contract.Errorf(contract.Unavailable, m.Path, "cannot be removed: %w", err)
	}
	return size, nil
}

// removeCached removes one file of a snapshot, or the whole repository when the model is all of it.
func (s Store) removeCached(m Model) (int64, error) {
	folder := m.Path
	for !strings.HasPrefix(filepath.Base(folder), "models--") {
		up := filepath.Dir(folder)
		if up == folder {
			return 0, contract.Errorf(contract.Internal, m.Path, "is not in the cache")
		}
		folder = up
	}
	if !isGGUF(m.Path) {
		size := sizeOf(filepath.Join(folder, "blobs"))
		if err := os.RemoveAll(folder); err != nil {
			return 0, contract.Errorf(contract.Unavailable, folder, "cannot be removed: %w", err)
		}
		return size, nil
	}
	for _, f := range partsOf(m.Path) {
		if err := os.Remove(f); err != nil {
			return 0, contract.Errorf(contract.Unavailable, f, "cannot be removed: %w", err)
		}
	}
	return sweep(folder)
}

// partsOf is the file and, of a split one, its other parts.
func partsOf(file string) []string {
	at := part.FindStringIndex(file)
	if at == nil {
		return []string{file}
	}
	parts, err := filepath.Glob(globEscape(file[:at[0]]) + "-*-of-*.gguf")
	if err != nil || len(parts) == 0 {
		return []string{file}
	}
	return parts
}

func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// sweep removes the blobs that no snapshot names any more, and the whole folder when no model file is left in it.
func sweep(folder string) (int64, error) {
	used, models := map[string]bool{}, false
	err := filepath.WalkDir(filepath.Join(folder, "snapshots"), func(at string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		target, err := filepath.EvalSymlinks(at)
		if err == nil {
			used[target] = true
		}
		models = models || isGGUF(at) || strings.HasSuffix(at, ".safetensors")
		return nil
	})
	if err != nil {
		return 0, contract.Errorf(contract.Unavailable, folder, "cannot be read: %w", err)
	}
	if !models {
		size := sizeOf(filepath.Join(folder, "blobs"))
		return size, os.RemoveAll(folder)
	}
	real, err := filepath.EvalSymlinks(filepath.Join(folder, "blobs"))
	if err != nil {
		return 0, contract.Errorf(contract.Unavailable, folder, "cannot be read: %w", err)
	}
	blobs, err := os.ReadDir(real)
	if err != nil {
		return 0, contract.Errorf(contract.Unavailable, real, "cannot be read: %w", err)
	}
	freed := int64(0)
	for _, b := range blobs {
		at := filepath.Join(real, b.Name())
		if used[at] || strings.HasSuffix(b.Name(), incomplete) {
			continue
		}
		if info, err := b.Info(); err == nil {
			freed += info.Size()
		}
		if err := os.Remove(at); err != nil {
			return freed, contract.Errorf(contract.Unavailable, at, "cannot be removed: %w", err)
		}
	}
	return freed, nil
}

// Size is how many bytes a model takes on disk.
func (m Model) Size() int64 {
	total := int64(0)
	for _, f := range partsOf(m.Path) {
		total += sizeOf(f)
	}
	return total
}

// sizeOf sums the files at and below a path, each once, links followed.
func sizeOf(at string) int64 {
	seen, total := map[string]bool{}, int64(0)
	add := func(p string) {
		real, err := filepath.EvalSymlinks(p)
		if err != nil || seen[real] {
			return
		}
		seen[real] = true
		if info, err := os.Stat(real); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
	}
	if info, err := os.Stat(at); err == nil && !info.IsDir() {
		add(at)
		return total
	}
	_ = filepath.WalkDir(at, func(p string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			add(p)
		}
		return nil
	})
	return total
}
