package hub

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/clademl/clade/sdk/contract"
)

// parallel is how many files come at once.
const parallel = 4

// spare is what a pull leaves free on the volume.
const spare = 1 << 30

// Pull is a download that was decided but not begun.
type Pull struct {
	Remote     *Remote
	Repository Repository
	Files      []File
	ref        Reference
	cache      string
}

// Progress of a pull, in bytes of all files.
type Progress struct{ Done, Total int64 }

// Prepare asks the hub what a pull would bring.
func (s Store) Prepare(ctx context.Context, r *Remote, ref Reference, revision string) (*Pull, error) {
	cache := s.hfRoot()
	if cache == "" {
		return nil, contract.Errorf(contract.InvalidArgument, "models.hf_cache", "no home folder to keep models in").WithNext("set HF_HUB_CACHE or models.hf_cache")
	}
	repo, err := r.Repository(ctx, ref.ID, revision)
	if err != nil {
		return nil, err
	}
	files, err := repo.Choose(ref)
	if err != nil {
		return nil, err
	}
	return &Pull{Remote: r, Repository: repo, Files: files, ref: ref, cache: cache}, nil
}

// Bytes is the size of everything that the pull covers.
func (p *Pull) Bytes() int64 {
	total := int64(0)
	for _, f := range p.Files {
		total += f.Size
	}
	return total
}

// Small brings one file of the pull that describes the model, such as config.json, before the rest; nil if it is not part of
// it.
func (p *Pull) Small(ctx context.Context, name string) ([]byte, error) {
	for _, f := range p.Files {
		if f.Path != name {
			continue
		}
		if f.Size > maxListing {
			return nil, contract.Errorf(contract.ArtifactCorrupt, p.Repository.ID+"/"+name, "has %d bytes", f.Size)
		}
		if err := os.MkdirAll(filepath.Join(p.folder(), "blobs"), 0o755); err != nil {
			return nil, contract.Errorf(contract.Unavailable, p.cache, "the cache cannot be written: %w", err)
		}
		if err := p.Remote.fetch(ctx, p.Repository, f, p.cache, func(int64) {}); err != nil {
			return nil, err
		}
		return os.ReadFile(filepath.Join(p.folder(), "blobs", f.etag()))
	}
	return nil, nil
}

func (p *Pull) folder() string { return filepath.Join(p.cache, folderOf(p.Repository.ID)) }

// Run brings the files and then, in one go, makes the snapshot: a model is in the cache whole or not at all. What came
// before an error stays for the next run. on is called from several goroutines.
func (p *Pull) Run(ctx context.Context, on func(Progress)) (Model, error) {
	if err := os.MkdirAll(filepath.Join(p.folder(), "blobs"), 0o755); err != nil {
		return Model{}, contract.Errorf(contract.Unavailable, p.cache, "the cache cannot be written: %w", err)
	}
	if err := p.room(); err != nil {
		return Model{}, err
	}
	total := p.Bytes()
	var done atomic.Int64
	moved := func(n int64) { on(Progress{done.Add(n), total}) }
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, f := range p.Files {
		group.Go(func() error { return p.Remote.fetch(inner, p.Repository, f, p.cache, moved) })
	}
	if err := group.Wait(); err != nil {
		return Model{}, err
	}
	return p.commit()
}

// room refuses a pull that would fill the volume.
func (p *Pull) room() error {
	missing := int64(0)
	for _, f := range p.Files {
		blob := filepath.Join(p.folder(), "blobs", f.etag())
		if _, err := os.Stat(blob); err == nil {
			continue
		}
		missing += f.Size
		if info, err := os.Stat(blob + incomplete); err == nil {
			missing -= min(info.Size(), f.Size)
		}
	}
	free, known := freeBytes(p.folder())
	if !known || missing == 0 || uint64(missing)+spare <= free {
		return nil
	}
	return contract.Errorf(contract.Unavailable, p.cache, "%d MiB are still to come and %d MiB are free, of which %d MiB stay free", missing>>20, free>>20, spare>>20).
		WithNext("free some space, or set HF_HUB_CACHE to another volume")
}

// commit links the snapshot's names to the blobs, the config last, and then moves the revision's name to it.
func (p *Pull) commit() (Model, error) {
	snapshot := filepath.Join(p.folder(), "snapshots", p.Repository.Commit)
	last := -1
	for i, f := range p.Files {
		if f.Path == "config.json" {
			last = i
			continue
		}
		if err := link(snapshot, f); err != nil {
			return Model{}, err
		}
	}
	if last >= 0 {
		if err := link(snapshot, p.Files[last]); err != nil {
			return Model{}, err
		}
	}
	if p.Repository.Revision != p.Repository.Commit {
		if err := writeRef(filepath.Join(p.folder(), "refs", filepath.FromSlash(p.Repository.Revision)), p.Repository.Commit); err != nil {
			return Model{}, err
		}
	}
	m := Model{ID: p.Repository.ID, Path: snapshot, Source: SourceHF}
	if isGGUF(p.Files[0].Path) {
		m.ID, m.Path = m.ID+"/"+p.Files[0].Path, filepath.Join(snapshot, filepath.FromSlash(p.Files[0].Path))
	}
	return m, nil
}

func link(snapshot string, f File) error {
	at := filepath.Join(snapshot, filepath.FromSlash(f.Path))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return contract.Errorf(contract.Unavailable, at, "cannot be written: %w", err)
	}
	target := strings.Repeat("../", 2+strings.Count(f.Path, "/")) + "blobs/" + f.etag()
	if now, err := os.Readlink(at); err == nil && now == target {
		return nil
	}
	tmp := at + incomplete
	_ = os.Remove(tmp)
	if err := os.Symlink(filepath.FromSlash(target), tmp); err != nil {
		return contract.Errorf(contract.Unavailable, at, "cannot be linked: %w", err)
	}
	if err := os.Rename(tmp, at); err != nil {
		return contract.Errorf(contract.Unavailable, at, "cannot be written: %w", err)
	}
	return nil
}

func writeRef(at, commit string) error {
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return contract.Errorf(contract.Unavailable, at, "cannot be written: %w", err)
	}
	tmp := at + incomplete
	if err := os.WriteFile(tmp, []byte(commit), 0o644); err != nil {
		return contract.Errorf(contract.Unavailable, at, "cannot be written: %w", err)
	}
	if err := os.Rename(tmp, at); err != nil {
		return contract.Errorf(contract.Unavailable, at, "cannot be written: %w", err)
	}
	return nil
}
