package hub

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// hfRoot is the cache's hub folder, found as huggingface_hub finds it: HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub.
func (s Store) hfRoot() string {
	if s.HFCache != "" {
		return s.HFCache
	}
	if dir := os.Getenv("HF_HUB_CACHE"); dir != "" {
		return dir
	}
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return filepath.Join(dir, "hub")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".cache", "huggingface", "hub")
}

// listHF lists models--ORG--NAME/snapshots/REV, one revision a repository: the one that refs/main names, else the newest.
func (s Store) listHF() ([]Model, error) {
	root := s.hfRoot()
	entries, err := os.ReadDir(root)
	if root == "" || os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, contract.Errorf(contract.NotFound, root, "cannot list the Hugging Face cache: %w", err)
	}
	var out []Model
	for _, e := range entries {
		id, ok := hubID(e.Name())
		if !ok {
			continue
		}
		snapshot := pickSnapshot(filepath.Join(root, e.Name()))
		if snapshot == "" {
			continue
		}
		out = append(out, modelsOfSnapshot(id, snapshot)...)
	}
	return out, nil
}

// hubID reads models--ORG--NAME; the first "--" after the prefix splits organisation and name.
func hubID(folder string) (string, bool) {
	rest, ok := strings.CutPrefix(folder, "models--")
	if !ok {
		return "", false
	}
	org, name, ok := strings.Cut(rest, "--")
	if !ok || org == "" || name == "" {
		return "", false
	}
	return org + "/" + name, true
}

func pickSnapshot(repo string) string {
	if rev, err := os.ReadFile(filepath.Join(repo, "refs", "main")); err == nil {
		name := strings.TrimSpace(string(rev))
		dir := filepath.Join(repo, "snapshots", name)
		if info, err := os.Stat(dir); err == nil && info.IsDir() && name == filepath.Base(name) {
			return dir
		}
	}
	entries, err := os.ReadDir(filepath.Join(repo, "snapshots"))
	if err != nil {
		return ""
	}
	var newest string
	var when int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.IsDir() && info.ModTime().UnixNano() >= when {
			newest, when = filepath.Join(repo, "snapshots", e.Name()), info.ModTime().UnixNano()
		}
	}
	return newest
}

// modelsOfSnapshot is the repository itself when it has a config.json, and each .gguf file in it.
func modelsOfSnapshot(id, dir string) []Model {
	var out []Model
	if holdsConfig(dir) {
		out = append(out, Model{ID: id, Path: dir, Source: SourceHF})
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return out
	}
	for _, e := range entries {
		if isGGUF(e.Name()) {
			out = append(out, Model{ID: id + "/" + e.Name(), Path: filepath.Join(dir, e.Name()), Source: SourceHF})
		}
	}
	return out
}
