package install

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/source"
	"github.com/clademl/clade/core/plugins/trust"
	"github.com/clademl/clade/sdk/contract"
)

// Bundle writes a file with a source's signed index and the archives of plugins and their runtimes for the given machines, for
// a machine without a network. refs are of one source, as the index is one.
func (m *Manager) Bundle(ctx context.Context, refs []string, machines []index.Machine, path string) (err error) {
	first := ""
	var names []string
	for _, ref := range refs {
		_, src, name, err := parseRef(ref)
		if err != nil {
			return err
		}
		if first == "" {
			first = src
		}
		if src != first {
			return contract.Errorf(contract.InvalidArgument, ref, "is of another source than %s", refs[0]).WithNext("make a bundle for each source")
		}
		names = append(names, name)
	}
	s, err := m.Trust.Find(first)
	if err != nil {
		return err
	}
	a, place, err := m.Refresh(ctx, s)
	if err != nil {
		return err
	}
	wanted, err := chosen(a, names, machines)
	if err != nil {
		return err
	}
	out, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return contract.Errorf(contract.Unavailable, path, "%w", err)
	}
	defer func() { _ = os.Remove(out.Name()) }() // gone after the rename
	err = m.writeBundle(ctx, out, s, place, wanted)
	if err = errors.Join(err, out.Chmod(0o644), out.Sync(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(out.Name(), path); err != nil {
		return contract.Errorf(contract.Unavailable, path, "%w", err)
	}
	return nil
}

// chosen are the archives of plugins for machines, each once.
func chosen(a index.Accepted, names []string, machines []index.Machine) ([]index.Archive, error) {
	var out []index.Archive
	seen := map[string]bool{}
	for _, machine := range machines {
		for _, name := range names {
			c, err := a.Choose(name, "", machine)
			if err != nil {
				return nil, err
			}
			for _, archive := range (&Proposal{Choice: c}).archives() {
				if !seen[archive.SHA256] {
					seen[archive.SHA256] = true
					out = append(out, archive)
				}
			}
		}
	}
	return out, nil
}

func (m *Manager) writeBundle(ctx context.Context, to io.Writer, s trust.Source, place source.Source, wanted []index.Archive) error {
	tape := tar.NewWriter(to)
	put := func(name string, size int64, r io.Reader) error {
		if err := tape.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err := io.Copy(tape, r)
		return err
	}
	l, err := m.Store.Lock(ctx, m.Waiting)
	if err != nil {
		return err
	}
	defer l.Unlock()
	// What was accepted a moment ago, byte for byte.
	for _, name := range []string{index.File, index.Signature} {
		f, err := os.Open(filepath.Join(m.Store.SourceDir(s.Name), name))
		if err != nil {
			return contract.Errorf(contract.Unavailable, s.Name, "%w", err)
		}
		info, err := f.Stat()
		if err == nil {
			err = put(name, info.Size(), f)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	for _, a := range wanted {
		if err := m.bundleArchive(ctx, l.Part(a.SHA256), place, a, put); err != nil {
			return err
		}
	}
	return tape.Close()
}

func (m *Manager) bundleArchive(ctx context.Context, part string, place source.Source, a index.Archive, put func(string, int64, io.Reader) error) error {
	report := func(done int64) {
		if m.Progress != nil {
			m.Progress(Progress{a.URLs[0], done, a.Size})
		}
	}
	if err := source.Download(ctx, place, a, part, report); err != nil {
		return err
	}
	f, err := os.Open(part)
	if err != nil {
		return err
	}
	return errors.Join(put(source.BundleName(a), a.Size, f), f.Close(), os.Remove(part))
}
