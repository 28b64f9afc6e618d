package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/clademl/clade/sdk/contract"
)

const installedFile = "installed.json"

// Record is one installed plugin.
type Record struct {
	// Plugin is its own name, Source where it came from, Signer the id of the key that signed the index.
	Plugin  string `json:"plugin"`
	Version string `json:"version"`
	Source  string `json:"source"`
	Signer  string `json:"signer"`
	// Digest is its folder's, Runtime the folder of the runtime it runs with; empty when it needs none.
	Digest  string `json:"digest"`
	Runtime string `json:"runtime,omitempty"`
	// Variant is the runtime's.
	Variant string    `json:"variant,omitempty"`
	Time    time.Time `json:"time"`
}

type installed struct {
	Schema  int      `json:"schema"`
	Plugins []Record `json:"plugins"`
}

// Installed lists the installed plugins by name.
func (s *Store) Installed() ([]Record, error) {
	path := filepath.Join(s.Dir, installedFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, s.Failed(err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var in installed
	if err = d.Decode(&in); err == nil && in.Schema != 1 {
		err = fmt.Errorf("schema is %d, this host reads 1", in.Schema)
	}
	for _, r := range in.Plugins {
		if err == nil && (!isName(r.Plugin) || !isDigest(r.Digest) || r.Runtime != "" && !isDigest(r.Runtime)) {
			err = fmt.Errorf("the entry of %q is malformed", r.Plugin)
		}
	}
	if err != nil {
		return nil, contract.Errorf(contract.PluginUntrusted, path, "%w", err).WithNext("remove it and install the plugins again")
	}
	return in.Plugins, nil
}

// Find is the record of a plugin.
func (s *Store) Find(plugin string) (Record, bool, error) {
	all, err := s.Installed()
	if i := slices.IndexFunc(all, func(r Record) bool { return r.Plugin == plugin }); err == nil && i >= 0 {
		return all[i], true, nil
	}
	return Record{}, false, err
}

// Stamp changes whenever installed.json does.
func (s *Store) Stamp() string {
	info, err := os.Stat(filepath.Join(s.Dir, installedFile))
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d %d", info.ModTime().UnixNano(), info.Size())
}

// Set replaces the record of a plugin.
func (l *Locked) Set(r Record) error {
	return l.edit(r.Plugin, &r)
}

// Unset removes the record of a plugin.
func (l *Locked) Unset(plugin string) error { return l.edit(plugin, nil) }

func (l *Locked) edit(plugin string, r *Record) error {
	all, err := l.Installed()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(have Record) bool { return have.Plugin == plugin })
	if r != nil {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Record) int { return strings.Compare(a.Plugin, b.Plugin) })
	data, err := json.MarshalIndent(installed{1, all}, "", "  ")
	if err != nil {
		return l.Failed(err)
	}
	if err := l.Step("record"); err != nil {
		return l.Failed(err)
	}
	if err := Replace(filepath.Join(l.Dir, installedFile), append(data, '\n')); err != nil {
		return l.Failed(err)
	}
	return l.Failed(l.Step("recorded"))
}

// Replace writes a file whole or not at all, and makes its folder.
func Replace(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone after the rename
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func isName(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func isDigest(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }
