package source

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/sdk/contract"
)

// folder is a directory; its files are opened through os.Root, so that no url and no link leads out of it.
type folder struct {
	dir string
	o   Options
}

func (f folder) Index(context.Context) (raw, signature []byte, err error) {
	if raw, err = f.read(index.File, index.MaxBytes); err != nil {
		return nil, nil, err
	}
	signature, err = f.read(index.Signature, index.MaxSignatureBytes)
	return raw, signature, err
}

func (f folder) read(name string, limit int64) ([]byte, error) {
	r, _, err := f.open(name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // only read
	return limited(r, limit, filepath.Join(f.dir, name))
}

func (f folder) Archive(ctx context.Context, a index.Archive, offset int64) (io.ReadCloser, int64, error) {
	return byURL(ctx, a, offset, f.o, func(name string) (io.ReadCloser, int64, error) { return f.open(name, offset) })
}

func (f folder) open(name string, offset int64) (io.ReadCloser, int64, error) {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, 0, contract.Errorf(contract.NotFound, f.dir, "%w", err)
	}
	defer func() { _ = root.Close() }() // files that it opened stay open
	file, err := root.Open(filepath.FromSlash(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, contract.Errorf(contract.NotFound, filepath.Join(f.dir, name), "is not there")
	}
	if err != nil {
		return nil, 0, contract.Errorf(contract.PluginUntrusted, name, "cannot be opened in %s: %w", f.dir, err)
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, offset, nil
}

// bundle is a tar file with an index, its signature, and archives by their names.
type bundle struct {
	path  string
	parts map[string]part
}

type part struct{ offset, size int64 }

// maxParts bounds what a bundle may hold.
const maxParts = 10_000

func openBundle(path string) (Source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, contract.Errorf(contract.NotFound, path, "%w", err)
	}
	defer func() { _ = f.Close() }() // only read
	b := bundle{path, map[string]part{}}
	for tape := tar.NewReader(f); ; {
		h, err := tape.Next()
		if errors.Is(err, io.EOF) && len(b.parts) > 0 {
			return b, nil
		}
		if err != nil || h.Typeflag != tar.TypeReg || len(b.parts) == maxParts {
			return nil, contract.Errorf(contract.PluginUntrusted, path, "is no bundle").WithNext("`clade plugin bundle` makes one")
		}
		// The reader stands at the entry's first byte.
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, contract.Errorf(contract.PluginUntrusted, path, "%w", err)
		}
		b.parts[h.Name] = part{at, h.Size}
	}
}

func (b bundle) Index(context.Context) (raw, signature []byte, err error) {
	if raw, err = b.read(index.File, index.MaxBytes); err != nil {
		return nil, nil, err
	}
	signature, err = b.read(index.Signature, index.MaxSignatureBytes)
	return raw, signature, err
}

func (b bundle) read(name string, limit int64) ([]byte, error) {
	r, _, err := b.open(name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // only read
	return limited(r, limit, b.path+": "+name)
}

// Archive goes by the digest: a bundle has its archives under BundleName, wherever the index says they lie.
func (b bundle) Archive(_ context.Context, a index.Archive, offset int64) (io.ReadCloser, int64, error) {
	return b.open(BundleName(a), offset)
}

// BundleName is an archive's name in a bundle.
func BundleName(a index.Archive) string { return path.Join("archives", a.SHA256+".tar.gz") }

func (b bundle) open(name string, offset int64) (io.ReadCloser, int64, error) {
	p, ok := b.parts[name]
	if !ok {
		return nil, 0, contract.Errorf(contract.NotFound, b.path, "has no %s", name).WithNext("make a bundle for this platform with `clade plugin bundle --platform`")
	}
	f, err := os.Open(b.path)
	if err != nil {
		return nil, 0, contract.Errorf(contract.NotFound, b.path, "%w", err)
	}
	offset = min(offset, p.size)
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, p.offset+offset, p.size-offset), f}, offset, nil
}
