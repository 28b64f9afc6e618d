package artifact

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// Format is how a model lies on disk; it picks the loader.
type Format string

// The formats, spelled as in a family record's loaders.
const (
	Safetensors Format = "safetensors"
	GGUF        Format = "gguf"
	Colibri     Format = "colibri"
)

// Artifact is an open model: headers checked, descriptors held. Its methods are safe for concurrent use, Close excepted.
type Artifact struct {
	// Path is absolute: a directory, or a .gguf file.
	Path   string
	Format Format

	config     Config
	generation Config
	metadata   map[string]string
	gguf       *GGUFMetadata
	tensors    []Tensor
	index      map[string]int
	files      map[string]*os.File
}

// Tensor is a named byte range that Open has checked.
type Tensor struct {
	Name  string
	DType DType
	// Shape is row-major, outermost first, also for GGUF (whose files list the innermost first).
	Shape []int64
	Bytes int64
	// File is the base name of the file that holds it, Offset where its bytes begin there.
	File   string
	Offset int64
}

// Open reads the headers and the config of the model at path (a directory or a .gguf file), checks all of them, and keeps
// the files open until Close.
func Open(path string) (_ *Artifact, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, path, "not a usable path: %w", err)
	}
	found, err := detect(abs)
	if err != nil {
		return nil, err
	}
	a := &Artifact{Path: abs, Format: found.format, index: map[string]int{}, files: map[string]*os.File{}}
	defer func() {
		if err != nil {
			_ = a.Close()
		}
	}()
	if found.format == GGUF {
		err = a.openGGUF(found.files[0])
	} else {
		err = a.openShards(found.files)
	}
	if err != nil {
		return nil, err
	}
	a.sortTensors()
	if found.format == GGUF {
		a.config, a.generation = configOfGGUF(a)
	}
	return a, nil
}

// OpenFile reads the header of one .safetensors file that is no model of its own, such as a vision tower or an adapter: it has
// no config. Path is the file's.
func OpenFile(path string) (_ *Artifact, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, path, "not a usable path: %w", err)
	}
	a := &Artifact{
		Path: abs, Format: Safetensors, index: map[string]int{}, files: map[string]*os.File{},
		config: Config{name: filepath.Base(abs)}, generation: Config{name: filepath.Base(abs)},
	}
	if err := a.readHeaders([]string{abs}, nil); err != nil {
		_ = a.Close()
		return nil, err
	}
	a.sortTensors()
	return a, nil
}

func (a *Artifact) sortTensors() {
	sort.Slice(a.tensors, func(i, j int) bool { return a.tensors[i].Name < a.tensors[j].Name })
	for i, t := range a.tensors {
		a.index[t.Name] = i
	}
}

// Bytes is what all tensors take in the files.
func (a *Artifact) Bytes() int64 {
	total := int64(0)
	for _, t := range a.tensors {
		total += t.Bytes
	}
	return total
}

// Close releases the descriptors. ReadAt fails afterwards.
func (a *Artifact) Close() error {
	var first error
	for _, f := range a.files {
		if err := f.Close(); err != nil && first == nil && !errors.Is(err, os.ErrClosed) {
			first = err
		}
	}
	return first
}

// Config is config.json as written, or GGUF metadata under the same keys.
func (a *Artifact) Config() Config { return a.config }

// GenerationConfig is generation_config.json, or what GGUF metadata says of the same; empty when absent.
func (a *Artifact) GenerationConfig() Config { return a.generation }

// Metadata is the merged __metadata__ of safetensors headers; nil for GGUF.
func (a *Artifact) Metadata() map[string]string { return a.metadata }

// GGUF is the typed metadata of a GGUF file, nil for other formats.
func (a *Artifact) GGUF() *GGUFMetadata { return a.gguf }

// Tensors lists all tensors sorted by name. The slice must not be changed.
func (a *Artifact) Tensors() []Tensor { return a.tensors }

// Tensor finds one by name.
func (a *Artifact) Tensor(name string) (Tensor, bool) {
	i, ok := a.index[name]
	if !ok {
		return Tensor{}, false
	}
	return a.tensors[i], true
}

// ReadAt fills p from byte off of the tensor, never leaving the range that Open checked. Like io.ReaderAt it returns io.EOF
// with a short count at the tensor's end. A file that shrank since Open is ArtifactCorrupt naming file and tensor.
func (a *Artifact) ReadAt(t Tensor, p []byte, off int64) (int, error) {
	own, ok := a.Tensor(t.Name)
	if !ok || own.File != t.File || own.Offset != t.Offset || own.Bytes != t.Bytes {
		return 0, contract.Errorf(contract.Internal, t.Name, "this tensor is not of the artifact %s", a.Path)
	}
	if off < 0 || off > t.Bytes {
		return 0, contract.Errorf(contract.Internal, subject(t.File, t.Name), "read at %d of %d bytes", off, t.Bytes)
	}
	want := p
	if left := t.Bytes - off; int64(len(want)) > left {
		want = want[:left]
	}
	n, err := a.files[t.File].ReadAt(want, t.Offset+off)
	switch {
	case n == len(want) && len(want) < len(p):
		return n, io.EOF
	case n == len(want):
		return n, nil
	case errors.Is(err, io.EOF):
		return n, corrupt(t.File, t.Name, "the file was truncated after it was opened: %d of %d bytes are left", off+int64(n), t.Bytes)
	}
	return n, corrupt(t.File, t.Name, "cannot be read: %w", err)
}

// sideFileLimit is the largest side file read; the biggest known tokenizer.json is 33 MB.
const sideFileLimit = 256 << 20

// File reads a small file beside the weights by its base name, such as tokenizer.json. It is NotFound when there is none,
// and for a .gguf file, which carries everything itself.
func (a *Artifact) File(name string) ([]byte, error) {
	if a.Format == GGUF {
		return nil, contract.Errorf(contract.NotFound, name, "a .gguf file has no files beside it")
	}
	return readSmall(a.Path, name, sideFileLimit)
}

// HasFile says whether a regular file of that base name lies beside the weights.
func (a *Artifact) HasFile(name string) bool {
	if a.Format == GGUF || !baseName(name) {
		return false
	}
	info, err := os.Stat(filepath.Join(a.Path, name))
	return err == nil && info.Mode().IsRegular()
}

func baseName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, `/\`) && filepath.IsLocal(name)
}

func readSmall(dir, name string, limit int64) ([]byte, error) {
	if !baseName(name) {
		return nil, contract.Errorf(contract.InvalidArgument, name, "not the name of a file beside the model")
	}
	f, size, err := openRegular(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if size > limit {
		return nil, corrupt(name, "", "%d bytes, the limit is %d", size, limit)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, corrupt(name, "", "cannot be read: %w", err)
	}
	if int64(len(data)) > limit {
		return nil, corrupt(name, "", "grew beyond the limit of %d bytes", limit)
	}
	return data, nil
}

// openRegular opens a regular file, following links, and gives its size. It looks before it opens, so that a pipe or a
// device is refused rather than waited on.
func openRegular(path string) (*os.File, int64, error) {
	before, err := os.Stat(path)
	if err != nil {
		return nil, 0, notThere(path, err)
	}
	if !before.Mode().IsRegular() {
		return nil, 0, corrupt(path, "", "is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, notThere(path, err)
	}
	after, err := f.Stat()
	if err != nil || !after.Mode().IsRegular() || !os.SameFile(before, after) {
		_ = f.Close()
		return nil, 0, corrupt(path, "", "changed while it was opened")
	}
	return f, after.Size(), nil
}

func notThere(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return contract.Errorf(contract.NotFound, path, "no such file")
	}
	return contract.Errorf(contract.NotFound, path, "cannot be opened: %w", err)
}
