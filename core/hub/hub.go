// Package hub finds models that are on this machine, in the configured model folders and in the Hugging Face cache, brings
// others into that cache, and removes them.
//
// A model argument is, in this order: a path (a directory or a .gguf file), the exact id of a local model, or a substring
// that exactly one local model's id contains. Ambiguity is an error that lists the candidates.
//
// A pull (Prepare, Run) writes the cache's own layout, blobs under their digests and snapshots of links to them, so that other
// programs see the model and it is not brought twice. Files come in parallel, each behind the lock that those programs take
// too; a broken download goes on where it ended; what the hub says of names, sizes and digests is checked before it is
// believed, and a file has its name only once its digest is right.
//
// Invariants: finding reads names and directory entries only; a snapshot appears whole; the token goes to the hub's own host
// alone. Not for: judging what a model is (sdk/artifact, core/family).
package hub

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// Store is where models lie. Missing folders are empty ones.
type Store struct {
	Dirs []string
	// HFCache is the hub folder of the Hugging Face cache; empty: the place its own tools use.
	HFCache string
}

// Model is a local model.
type Model struct {
	// ID is ORG/NAME for a hub model, ORG/NAME/FILE.gguf for one file of it, and the path below its folder otherwise.
	ID string `json:"id"`
	// Path is absolute: a directory, or a .gguf file.
	Path   string `json:"path"`
	Source string `json:"source"`
}

// Sources of a model.
const (
	SourcePath   = "path"
	SourceFolder = "folder"
	SourceHF     = "hf-cache"
)

// maxCandidates bounds how many names an ambiguity error lists.
const maxCandidates = 10

// Resolve turns a model argument into a local model. Errors: NotFound, or InvalidArgument when several match.
func (s Store) Resolve(arg string) (Model, error) {
	if arg == "" {
		return Model{}, contract.Errorf(contract.InvalidArgument, "MODEL", "no model named").WithNext("name a directory, a .gguf file, or part of a local model's id")
	}
	if m, ok, err := fromPath(arg); ok || err != nil {
		return m, err
	}
	models, err := s.List()
	if err != nil {
		return Model{}, err
	}
	var hits []Model
	for _, m := range models {
		if strings.EqualFold(m.ID, arg) {
			return m, nil
		}
		if strings.Contains(strings.ToLower(m.ID), strings.ToLower(arg)) {
			hits = append(hits, m)
		}
	}
	switch len(hits) {
	case 0:
		return Model{}, contract.Errorf(contract.NotFound, arg, "no such file, and no local model's id contains it").
			WithNext("give a path, bring it with `clade pull ORG/NAME`, or put it under one of %s", strings.Join(s.places(), ", "))
	case 1:
		return hits[0], nil
	}
	return Model{}, contract.Errorf(contract.InvalidArgument, arg, "matches %d local models: %s", len(hits), names(hits)).
		WithNext("name more of one")
}

// fromPath takes arg as a path if something is there. A path that looks like one but is absent is left to the id search,
// so that "org/name" is not mistaken for a missing directory.
func fromPath(arg string) (Model, bool, error) {
	info, err := os.Stat(arg)
	if err != nil {
		if filepath.IsAbs(arg) || strings.HasPrefix(arg, "."+string(filepath.Separator)) || strings.HasPrefix(arg, ".."+string(filepath.Separator)) {
			return Model{}, false, contract.Errorf(contract.NotFound, arg, "no such model file or directory")
		}
		return Model{}, false, nil
	}
	abs, err := filepath.Abs(arg)
	if err != nil {
		return Model{}, false, contract.Errorf(contract.InvalidArgument, arg, "%w", err)
	}
	if !info.IsDir() && !isGGUF(arg) {
		return Model{}, false, contract.Errorf(contract.InvalidArgument, arg, "is not a directory and not a .gguf file")
	}
	return Model{ID: idOfPath(abs), Path: abs, Source: SourcePath}, true, nil
}

// idOfPath names a model given by path: ORG/NAME inside a Hugging Face cache, else the last part.
func idOfPath(path string) string {
	parts := strings.Split(filepath.ToSlash(path), "/")
	for i, p := range parts {
		if id, ok := hubID(p); ok && i+2 < len(parts) && parts[i+1] == "snapshots" {
			return strings.Join(append([]string{id}, parts[i+3:]...), "/")
		}
	}
	return strings.TrimSuffix(filepath.Base(path), ".gguf")
}

// List is every local model, by id.
func (s Store) List() ([]Model, error) {
	var out []Model
	for _, dir := range s.Dirs {
		found, err := listFolder(dir, "", 0)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	cached, err := s.listHF()
	if err != nil {
		return nil, err
	}
	out = append(out, cached...)
	slices.SortStableFunc(out, func(a, b Model) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(out, func(a, b Model) bool { return a.Path == b.Path }), nil
}

// folderDepth is how far below a model folder models lie: ORG/NAME.
const folderDepth = 2

func listFolder(dir, id string, depth int) ([]Model, error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) && depth == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, contract.Errorf(contract.NotFound, dir, "cannot list the model folder: %w", err)
	}
	var out []Model
	for _, e := range entries {
		path, name := filepath.Join(dir, e.Name()), strings.TrimPrefix(id+"/"+e.Name(), "/")
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := os.Stat(path) // follows links
		switch {
		case err != nil:
			continue
		case isGGUF(e.Name()) && !info.IsDir():
			out = append(out, Model{ID: strings.TrimSuffix(name, ".gguf"), Path: path, Source: SourceFolder})
		case info.IsDir() && holdsConfig(path):
			out = append(out, Model{ID: name, Path: path, Source: SourceFolder})
		case info.IsDir() && depth+1 < folderDepth:
			below, err := listFolder(path, name, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, below...)
		}
	}
	return out, nil
}

func holdsConfig(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, "config.json"))
	return err == nil && !info.IsDir()
}

func isGGUF(name string) bool { return strings.EqualFold(filepath.Ext(name), ".gguf") }

func (s Store) places() []string {
	return append(slices.Clone(s.Dirs), s.hfRoot())
}

func names(models []Model) string {
	var out []string
	for _, m := range models[:min(len(models), maxCandidates)] {
		out = append(out, m.ID)
	}
	if len(models) > maxCandidates {
		out = append(out, "...")
	}
	return strings.Join(out, ", ")
}
