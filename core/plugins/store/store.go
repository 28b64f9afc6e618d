package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/clademl/clade/sdk/contract"
)

// Store is a folder that need not exist yet.
type Store struct {
	Dir string
	// Fault is called at each step of a change with its name; an error ends the change there. Nil but in tests.
	Fault func(step string) error
}

const (
	prefix       = "sha256-"
	tmpDir       = "tmp"
	useDir       = "use"
	lockFile     = "lock"
	partSuffix   = ".part"
	retryLock    = 50 * time.Millisecond
	partLifetime = 24 * time.Hour
)

// Folder is where the archive with this digest lies when it is there.
func (s *Store) Folder(digest string) string { return filepath.Join(s.Dir, prefix+digest) }

// SourceDir is where a source's index is kept.
func (s *Store) SourceDir(name string) string { return filepath.Join(s.Dir, "sources", name) }

// Has says whether a folder is there; then it is complete.
func (s *Store) Has(digest string) bool {
	info, err := os.Lstat(s.Folder(digest))
	return err == nil && info.IsDir()
}

// Step tells a test that a change has come to a step.
func (s *Store) Step(name string) error {
	if s.Fault == nil {
		return nil
	}
	return s.Fault(name)
}

// Check refuses a store that others may write: they could put another program in a plugin's place.
func (s *Store) Check() error {
	for _, path := range []string{s.Dir, filepath.Join(s.Dir, installedFile)} {
		if err := s.guarded(path); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) guarded(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return contract.Errorf(contract.PluginUntrusted, path, "%w", err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0 {
		return contract.Errorf(contract.PluginUntrusted, path, "others may write the plugin store (mode %#o)", info.Mode().Perm()).
			WithNext("chmod go-w it, after a look at what it holds; `clade plugin verify` compares it with its receipts")
	}
	return nil
}

// Locked is a store that this process alone changes.
type Locked struct {
	*Store
	lock *flock.Flock
}

// Lock waits until no other process changes the store, calling waiting once if one does, and sweeps what a killed one left.
func (s *Store) Lock(ctx context.Context, waiting func()) (*Locked, error) {
	for _, dir := range []string{s.Dir, filepath.Join(s.Dir, tmpDir), filepath.Join(s.Dir, useDir)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, s.Failed(err)
		}
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	l := &Locked{s, flock.New(filepath.Join(s.Dir, lockFile))}
	got, err := l.lock.TryLock()
	if err == nil && !got {
		if waiting != nil {
			waiting()
		}
		got, err = l.lock.TryLockContext(ctx, retryLock)
	}
	switch {
	case ctx.Err() != nil:
		return nil, contract.Errorf(contract.Cancelled, s.Dir, "stopped while another process changes the plugin store")
	case err != nil || !got:
		return nil, s.Failed(err)
	}
	if err := errors.Join(l.sweep(), s.Step("locked")); err != nil {
		l.Unlock()
		return nil, s.Failed(err)
	}
	return l, nil
}

// Unlock lets others change the store.
func (l *Locked) Unlock() { _ = l.lock.Unlock() } // the process's end unlocks it too

// Failed words a file operation that did not work.
func (s *Store) Failed(err error) error {
	var known *contract.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case noSpace(err):
		return contract.Errorf(contract.Unavailable, s.Dir, "no space is left on the device").WithNext("free some, or move the store: plugins.store (CLADE_PLUGINS_STORE)")
	}
	return contract.Errorf(contract.Unavailable, s.Dir, "%w", err).WithNext("the store's folder is set by plugins.store (CLADE_PLUGINS_STORE)")
}

// sweep removes what killed processes left, and downloads that nobody resumed for a day.
func (l *Locked) sweep() error {
	half, err := filepath.Glob(filepath.Join(l.Dir, "."+installedFile+"-*"))
	if err != nil {
		return err
	}
	for _, path := range half {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	tmp := filepath.Join(l.Dir, tmpDir)
	entries, err := os.ReadDir(tmp)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), partSuffix) && time.Since(info.ModTime()) < partLifetime {
			continue
		}
		if err := os.RemoveAll(filepath.Join(tmp, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Part is the file of a download that may be resumed.
func (l *Locked) Part(digest string) string {
	return filepath.Join(l.Dir, tmpDir, digest+partSuffix)
}

// Room refuses early what the device has no space for.
func (l *Locked) Room(bytes int64) error {
	if free, ok := freeBytes(l.Dir); ok && free < uint64(bytes) {
		return contract.Errorf(contract.Unavailable, l.Dir, "the installation needs %d bytes, the device has %d left", bytes, free).
			WithNext("free some, or move the store: plugins.store (CLADE_PLUGINS_STORE)")
	}
	return nil
}

// Add makes the folder of a digest: fill writes it into a staging folder, which then appears under its name.
func (l *Locked) Add(digest string, fill func(staging string) error) (err error) {
	if l.Has(digest) {
		return nil
	}
	staging, err := os.MkdirTemp(filepath.Join(l.Dir, tmpDir), "new-")
	if err != nil {
		return l.Failed(err)
	}
	defer func() {
		if err != nil {
			err = l.Failed(err)
			_ = os.RemoveAll(staging) // what stays is swept with the next change
		}
	}()
	if err := os.Chmod(staging, 0o755); err != nil {
		return err
	}
	if err := fill(staging); err != nil {
		return err
	}
	if err := errors.Join(syncFolders(staging), l.Step("synced")); err != nil {
		return err
	}
	if err := os.Rename(staging, l.Folder(digest)); err != nil {
		return err
	}
	return errors.Join(syncFolder(l.Dir), l.Step("renamed"))
}

func syncFolders(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncFolder(path)
	})
}

// syncFolder makes renames in a folder last; systems that cannot sync a folder do without.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_ = f.Sync()
	return f.Close()
}

// Hold keeps a folder from being removed while this process runs what is in it.
func (s *Store) Hold(digest string) (release func(), err error) {
	use := flock.New(filepath.Join(s.Dir, useDir, digest))
	if err := os.MkdirAll(filepath.Join(s.Dir, useDir), 0o755); err != nil {
		return nil, s.Failed(err)
	}
	if err := use.RLock(); err != nil {
		return nil, s.Failed(err)
	}
	if !s.Has(digest) {
		_ = use.Unlock()
		return nil, contract.Errorf(contract.PluginMissing, s.Folder(digest), "was removed meanwhile").WithNext("try again")
	}
	return func() { _ = use.Unlock() }, nil
}

// Collect removes every folder that no installed plugin needs and no process holds, and says how many.
func (l *Locked) Collect() (removed int, err error) {
	in, err := l.Installed()
	if err != nil {
		return 0, err
	}
	needed := map[string]bool{}
	for _, r := range in {
		needed[prefix+r.Digest], needed[prefix+r.Runtime] = true, true
	}
	entries, err := os.ReadDir(l.Dir)
	if err != nil {
		return 0, l.Failed(err)
	}
	for _, e := range entries {
		digest, is := strings.CutPrefix(e.Name(), prefix)
		if !is || needed[e.Name()] {
			continue
		}
		gone, err := l.discard(digest)
		if err != nil {
			return removed, l.Failed(err)
		}
		if gone {
			removed++
		}
	}
	return removed, l.Step("collected")
}

// discard removes a folder in one step, then its content.
func (l *Locked) discard(digest string) (bool, error) {
	use := flock.New(filepath.Join(l.Dir, useDir, digest))
	free, err := use.TryLock()
	if err != nil || !free {
		return false, err
	}
	defer func() { _ = use.Unlock() }()
	old := filepath.Join(l.Dir, tmpDir, "old-"+digest)
	if err := os.Rename(l.Folder(digest), old); err != nil {
		return false, fmt.Errorf("%s: %w", l.Folder(digest), err)
	}
	return true, os.RemoveAll(old)
}
