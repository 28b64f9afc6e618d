package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/core/plugins"
	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/pack"
	"github.com/clademl/clade/core/plugins/source"
	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/core/plugins/trust"
	"github.com/clademl/clade/sdk/contract"
)

// Manager changes what is installed.
type Manager struct {
	Store *store.Store
	Trust *trust.File
	// LockFile is plugins.lock.
	LockFile string
	Machine  index.Machine
	Sources  source.Options
	// Release refuses what only a development build may trust.
	Release bool
	// Offers are the manifests that are there without the indexes: what a new plugin must not conflict with.
	Offers []corefamily.Offer
	// Progress is told how a download goes; Waiting that another process changes the store. Both may be nil.
	Progress func(Progress)
	Waiting  func()
	// Now is the clock; nil: the machine's.
	Now func() time.Time
}

// Progress is the state of one download.
type Progress struct {
	// What is "universal 0.1.0" or "runtime cpu 0.32.2".
	What        string
	Done, Total int64
}

func (m *Manager) now() time.Time {
	if m.Now == nil {
		return time.Now()
	}
	return m.Now()
}

// Install makes what was proposed. What is there already is not brought again.
func (m *Manager) Install(ctx context.Context, p *Proposal) (store.Record, error) {
	l, err := m.Store.Lock(ctx, m.Waiting)
	if err != nil {
		return store.Record{}, err
	}
	defer l.Unlock()
	if err := m.conflicts(l, p); err != nil {
		return store.Record{}, err
	}
	record, err := m.bring(ctx, l, p)
	if err == nil {
		err = m.write(l, p, record)
	}
	if k := contract.KindOf(err); err != nil && k != contract.PluginUntrusted && k != contract.PluginMismatch {
		return store.Record{}, l.Failed(err) // what was brought waits for the next try
	}
	_, collectErr := l.Collect()
	return record, errors.Join(err, collectErr)
}

// write writes the record, then the lock file.
func (m *Manager) write(l *store.Locked, p *Proposal, r store.Record) error {
	if err := l.Set(r); err != nil {
		return err
	}
	if err := m.lock(p); err != nil {
		return err
	}
	return l.Step("locked versions")
}

// bring makes the folders of a proposal and its record, which nobody has written yet.
func (m *Manager) bring(ctx context.Context, l *store.Locked, p *Proposal) (store.Record, error) {
	// The archives and what is in them, for a moment at the same time.
	if err := l.Room(2*p.Missing + p.unpacked(l)); err != nil {
		return store.Record{}, err
	}
	c := p.Choice
	record := store.Record{
		Plugin: c.Name, Version: c.Version.Version, Source: p.Source.Name, Signer: p.Index.Signer, Digest: c.Archive.SHA256, Time: m.now().UTC(),
	}
	if r := c.Runtime; r != nil {
		record.Runtime, record.Variant = r.SHA256, r.Variant
		if err := m.add(ctx, l, p, r.Archive, runtimeTitle(r), func(dir string, files []pack.File) error { return checkRuntime(dir, r, files) }); err != nil {
			return store.Record{}, err
		}
	}
	return record, m.add(ctx, l, p, c.Archive, p.Name+" "+c.Version.Version, func(dir string, _ []pack.File) error { return checkPlugin(dir, c) })
}

// conflicts refuses a plugin whose name or graphs are taken.
func (m *Manager) conflicts(l *store.Locked, p *Proposal) error {
	have, there, err := l.Find(p.Choice.Name)
	if err != nil {
		return err
	}
	if there && have.Source != p.Source.Name {
		return contract.Errorf(contract.PluginMismatch, p.Name, "a plugin %s of source %s is installed", have.Plugin, have.Source).
			WithNext("clade plugin remove %s", have.Plugin)
	}
	return corefamily.CheckInstall(m.Offers, p.Choice.Version.Parsed())
}

func runtimeTitle(r *index.Runtime) string {
	return fmt.Sprintf("runtime %s, MLX %s", r.Variant, r.MLX)
}

// add brings an archive, unpacks it, and lets it appear after check was content.
func (m *Manager) add(ctx context.Context, l *store.Locked, p *Proposal, a index.Archive, title string, check func(dir string, files []pack.File) error) error {
	return l.Add(a.SHA256, func(staging string) error {
		part := l.Part(a.SHA256)
		if err := l.Step("download"); err != nil {
			return err
		}
		report := func(done int64) {
			if m.Progress != nil {
				m.Progress(Progress{title, done, a.Size})
			}
		}
		if err := source.Download(ctx, p.source, a, part, report); err != nil {
			return err
		}
		if err := l.Step("downloaded"); err != nil {
			return err
		}
		files, err := unpack(ctx, l, part, staging, a)
		if err != nil {
			// It has the announced digest: the index or its publisher is at fault, and another try would end as this one.
			return errors.Join(err, os.Remove(part))
		}
		if err := check(staging, files); err != nil {
			return errors.Join(err, os.Remove(part))
		}
		return errors.Join(os.Remove(part), l.Step("checked"))
	})
}

func unpack(ctx context.Context, l *store.Locked, archive, into string, a index.Archive) ([]pack.File, error) {
	in, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // only read
	root, err := os.OpenRoot(into)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	files, err := pack.Unpack(in, root, pack.Limits{Bytes: a.Unpacked, Before: func(string) error {
		return errors.Join(ctx.Err(), l.Step("unpack"))
	}})
	// What the system refuses (a full device) is not the archive's fault, but for a name that is there twice.
	var system syscall.Errno
	if err != nil && contract.KindOf(err) == contract.Internal && (!errors.As(err, &system) || errors.Is(err, fs.ErrExist)) {
		err = contract.Errorf(contract.PluginUntrusted, a.URLs[0], "%w", err).WithNext("tell the publisher; nothing was installed")
	}
	return files, err
}

// checkPlugin compares the unpacked plugin with the index and with what its binary says, and seals it.
func checkPlugin(dir string, c index.Choice) error {
	subject := c.Name + " " + c.Version.Version
	said, err := plugins.ManifestOf(dir)
	if err != nil {
		return err
	}
	if said.JSON() != c.Version.Parsed().JSON() {
		return contract.Errorf(contract.PluginMismatch, subject, "its plugin.yaml is not the one that the index has").
			WithNext("tell the publisher; nothing was installed")
	}
	if err := plugins.Seal(dir); err != nil {
		var e *contract.Error
		if errors.As(err, &e) { // the staging folder means nothing to a reader
			return &contract.Error{Kind: e.Kind, Subject: subject, Message: e.Message, Next: "tell the publisher; nothing was installed", Err: e.Err}
		}
		return err
	}
	return nil
}

// checkRuntime compares the unpacked runtime with the index and its own list of files.
func checkRuntime(dir string, want *index.Runtime, files []pack.File) error {
	r, err := plugins.ReadRuntime(dir)
	if err != nil {
		return err
	}
	if r.Variant != want.Variant || r.MLX != want.MLX || r.MLXC != want.MLXC || r.OS != want.OS || r.Arch != want.Arch {
		return contract.Errorf(contract.PluginMismatch, runtimeTitle(want), "its archive holds the runtime %s for %s/%s, MLX %s, mlx-c %s", r.Variant, r.OS, r.Arch, r.MLX, r.MLXC).
			WithNext("tell the publisher; nothing was installed")
	}
	if len(files) != len(r.Files)+1 { // and runtime.json itself
		return contract.Errorf(contract.PluginMismatch, runtimeTitle(want), "its archive holds %d files, its runtime.json names %d", len(files)-1, len(r.Files))
	}
	for _, f := range r.Files {
		if !slices.Contains(files, f) {
			return contract.Errorf(contract.PluginMismatch, runtimeTitle(want), "%s is not as its runtime.json says", f.Path)
		}
	}
	return nil
}

// Remove takes a plugin out, and its runtime if no other plugin needs it. ref may carry the source.
func (m *Manager) Remove(ctx context.Context, ref string) (store.Record, error) {
	ref, _, name, err := parseRef(ref)
	if err != nil {
		return store.Record{}, err
	}
	l, err := m.Store.Lock(ctx, m.Waiting)
	if err != nil {
		return store.Record{}, err
	}
	defer l.Unlock()
	have, there, err := l.Find(name)
	if err != nil {
		return have, err
	}
	if !there {
		return have, notInstalled(ref, m.Store.Dir)
	}
	if err := l.Unset(name); err != nil {
		return have, err
	}
	if err := m.unlock(name); err != nil {
		return have, err
	}
	_, err = l.Collect()
	return have, err
}

func notInstalled(ref, dir string) error {
	return contract.Errorf(contract.NotFound, ref, "is not installed in %s", filepath.Clean(dir)).WithNext("`clade plugin list`")
}
