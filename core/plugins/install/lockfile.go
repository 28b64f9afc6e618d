package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/sdk/contract"
)

// lockfile is plugins.lock: the version of each plugin and the digests of its archives for every platform, so that the file of
// one machine serves all.
type lockfile struct {
	Schema  int                     `json:"schema"`
	Plugins map[string]lockedPlugin `json:"plugins"`
}

type lockedPlugin struct {
	Source  string `json:"source"`
	Version string `json:"version"`
	// Platforms are SHA-256 digests by os/arch or os/arch/variant, Runtimes by os/arch/variant.
	Platforms map[string]string `json:"platforms"`
	Runtimes  map[string]string `json:"runtimes,omitempty"`
}

func (m *Manager) readLock() (lockfile, error) {
	f := lockfile{Schema: 1, Plugins: map[string]lockedPlugin{}}
	data, err := os.ReadFile(m.LockFile)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&f)
	}
	if err == nil && (f.Schema != 1 || f.Plugins == nil) {
		err = fmt.Errorf("schema is %d, this host reads 1", f.Schema)
	}
	if err != nil {
		return f, contract.Errorf(contract.InvalidArgument, m.LockFile, "%w", err).WithNext("mend it, or remove it and install the plugins again")
	}
	return f, nil
}

func (m *Manager) writeLock(f lockfile) error {
	data, err := json.MarshalIndent(f, "", "  ")
	if err == nil {
		err = store.Replace(m.LockFile, append(data, '\n'))
	}
	if err != nil {
		return contract.Errorf(contract.Unavailable, m.LockFile, "%w", err)
	}
	return nil
}

// lock writes what was installed into the lock file; one that says so already is left alone.
func (m *Manager) lock(p *Proposal) error {
	f, err := m.readLock()
	if err != nil {
		return err
	}
	now := lockedOf(p)
	if was, ok := f.Plugins[p.Choice.Name]; ok && was.equal(now) {
		return nil
	}
	f.Plugins[p.Choice.Name] = now
	return m.writeLock(f)
}

func lockedOf(p *Proposal) lockedPlugin {
	v := p.Choice.Version
	out := lockedPlugin{Source: p.Source.Name, Version: v.Version, Platforms: map[string]string{}}
	for _, a := range v.Platforms {
		out.Platforms[a.Platform()] = a.SHA256
	}
	needs := v.Parsed().Runtime
	if len(needs.MLX)+len(needs.MLXC) == 0 {
		return out
	}
	out.Runtimes = map[string]string{}
	for _, r := range p.Index.Runtimes {
		if index.WorksWith(needs.MLX, r.MLX) && index.WorksWith(needs.MLXC, r.MLXC) {
			out.Runtimes[r.Platform()] = r.SHA256
		}
	}
	return out
}

func (a lockedPlugin) equal(b lockedPlugin) bool {
	return a.Source == b.Source && a.Version == b.Version && maps.Equal(a.Platforms, b.Platforms) && maps.Equal(a.Runtimes, b.Runtimes)
}

func (m *Manager) unlock(plugin string) error {
	f, err := m.readLock()
	if err != nil {
		return err
	}
	if _, ok := f.Plugins[plugin]; !ok {
		return nil
	}
	delete(f.Plugins, plugin)
	return m.writeLock(f)
}

// LockedNames are the plugins of the lock file, as a person calls them.
func (m *Manager) LockedNames() ([]string, error) {
	f, err := m.readLock()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f.Plugins)) {
		out = append(out, Qualified(f.Plugins[name].Source, name))
	}
	if len(out) == 0 {
		return nil, contract.Errorf(contract.NotFound, m.LockFile, "locks no plugin").WithNext("`clade plugin install` writes it")
	}
	return out, nil
}

// ProposeLocked proposes exactly what the lock file has, and refuses an index that has it otherwise.
func (m *Manager) ProposeLocked(ctx context.Context, ref string) (*Proposal, error) {
	_, source, name, err := parseRef(ref)
	if err != nil {
		return nil, err
	}
	f, err := m.readLock()
	if err != nil {
		return nil, err
	}
	want, ok := f.Plugins[name]
	if !ok || want.Source != source {
		return nil, contract.Errorf(contract.NotFound, ref, "is not in %s", m.LockFile).WithNext("install it without --locked")
	}
	p, err := m.Propose(ctx, ref, want.Version)
	if err != nil {
		return nil, err
	}
	differs := want.Platforms[p.Choice.Archive.Platform()] != p.Choice.Archive.SHA256
	if r := p.Choice.Runtime; r != nil {
		differs = differs || want.Runtimes[r.Platform()] != r.SHA256
	}
	if differs {
		return nil, contract.Errorf(contract.PluginUntrusted, ref, "version %s of the source is not the one that %s has", want.Version, m.LockFile).
			WithNext("if the change is wanted: clade plugin update %s", ref)
	}
	return p, nil
}
