package artifact

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sort"

	"github.com/clademl/clade/sdk/contract"
)

// Caps on a GGUF header. Each is far above any real file and far below what could hurt; lengths and counts are checked
// against the bytes that are left as well.
const (
	ggufKeyLimit    = 1 << 16  // the specification's cap on a key
	ggufStringLimit = 16 << 20 // a chat template stays under 1 MB
	ggufEntryLimit  = 1 << 16  // metadata entries
	ggufItemLimit   = 1 << 24  // array elements in one file; vocabularies have 262144
	ggufTensorLimit = 1 << 20
	ggufNestLimit   = 4
	ggufDims        = 4
	ggufAlignMax    = 1 << 20
	ggufAlign       = 32 // when general.alignment is absent
	// ggufReadAhead is how far reading goes past a header: a plan reads headers and at most 64 KiB more.
	ggufReadAhead = 16 << 10
)

// ggufReader reads a header forwards, never past the file's end.
type ggufReader struct {
	file  string
	src   *bufio.Reader
	pos   int64
	size  int64
	items int64
}

// openGGUF reads the header of the file at path.
func (a *Artifact) openGGUF(path string) error {
	f, size, err := openRegular(path)
	if err != nil {
		return err
	}
	file := filepath.Base(path)
	a.files[file] = f
	meta, tensors, err := readGGUF(file, f, size)
	if err != nil {
		return err
	}
	if n, ok := meta.Uint("split.count"); ok && n > 1 {
		return contract.Errorf(contract.UnsupportedModel, file, "is one of %d parts of a split GGUF", n).
			WithNext("merge the parts with llama-gguf-split --merge")
	}
	a.gguf, a.tensors = meta, tensors
	return nil
}

// readGGUF reads and checks a whole header, versions 2 and 3, little-endian.
func readGGUF(file string, src io.ReaderAt, size int64) (*GGUFMetadata, []Tensor, error) {
	r := &ggufReader{file: file, size: size, src: bufio.NewReaderSize(io.NewSectionReader(src, 0, size), ggufReadAhead)}
	meta, tensors, err := r.header()
	if err != nil {
		return nil, nil, asCorrupt(file, "header", err)
	}
	return meta, tensors, nil
}

func (r *ggufReader) header() (*GGUFMetadata, []Tensor, error) {
	magic, err := r.bytes(4)
	if err != nil {
		return nil, nil, err
	}
	if string(magic) != "GGUF" {
		return nil, nil, fmt.Errorf("begins with %q, not GGUF", magic)
	}
	version, err := r.u32()
	switch {
	case err != nil:
		return nil, nil, err
	case version&0xffff == 0:
		return nil, nil, errors.New("is a big-endian GGUF, which is not read")
	case version != 2 && version != 3:
		return nil, nil, fmt.Errorf("GGUF version %d, only 2 and 3 are read", version)
	}
	tensorCount, err := r.count("tensors", ggufTensorLimit, 8+4+8+4+8)
	if err != nil {
		return nil, nil, err
	}
	entries, err := r.count("metadata entries", ggufEntryLimit, 8+4+1)
	if err != nil {
		return nil, nil, err
	}
	meta := &GGUFMetadata{file: r.file, Version: int(version), values: make(map[string]any, min(entries, 256))}
	for range entries {
		if err := r.entry(meta); err != nil {
			return nil, nil, err
		}
	}
	tensors, err := r.tensors(meta, tensorCount)
	return meta, tensors, err
}

func (r *ggufReader) entry(meta *GGUFMetadata) error {
	key, err := r.text(ggufKeyLimit)
	if err != nil {
		return fmt.Errorf("metadata key %d: %w", len(meta.values), err)
	}
	if _, dup := meta.values[key]; dup || key == "" {
		return corrupt(r.file, key, "the metadata key is empty or appears twice")
	}
	kind, err := r.u32()
	if err != nil {
		return asCorrupt(r.file, key, err)
	}
	v, err := r.value(kind, 0)
	if err != nil {
		return asCorrupt(r.file, key, err)
	}
	meta.values[key] = v
	meta.keys = append(meta.keys, key)
	return nil
}

// tensors reads the tensor table and checks every range against the data section.
func (r *ggufReader) tensors(meta *GGUFMetadata, count int64) ([]Tensor, error) {
	align, err := meta.alignment()
	if err != nil {
		return nil, err
	}
	list := make([]Tensor, 0, min(count, 4096))
	names := make(map[string]struct{}, min(count, 4096))
	for i := range count {
		t, err := r.tensor(align)
		if err != nil {
			return nil, asCorrupt(r.file, fmt.Sprintf("tensor %d", i), err)
		}
		if _, dup := names[t.Name]; dup {
			return nil, corrupt(r.file, t.Name, "appears twice")
		}
		names[t.Name] = struct{}{}
		list = append(list, t)
	}
	start := (r.pos + align - 1) / align * align
	if count == 0 {
		return list, nil
	}
	order := make([]*Tensor, len(list))
	for i := range list {
		order[i] = &list[i]
	}
	sort.Slice(order, func(i, j int) bool { return order[i].Offset < order[j].Offset })
	at, before := int64(0), ""
	for _, t := range order {
		payload := max(r.size-start, 0)
		switch {
		case t.Offset > payload || t.Bytes > payload-t.Offset:
			return nil, corrupt(r.file, t.Name, "its %d bytes at offset %d go beyond the file's data of %d bytes", t.Bytes, t.Offset, payload)
		case t.Offset < at:
			return nil, corrupt(r.file, t.Name, "its bytes at offset %d overlap %s", t.Offset, clip(before))
		}
		at, before = t.Offset+t.Bytes, t.Name
		t.Offset += start
	}
	return list, nil
}

func (r *ggufReader) tensor(align int64) (Tensor, error) {
	t := Tensor{File: r.file}
	var err error
	if t.Name, err = r.text(ggufKeyLimit); err != nil {
		return t, err
	}
	dims, err := r.u32()
	if err != nil {
		return t, asCorrupt(r.file, t.Name, err)
	}
	if dims > ggufDims {
		return t, corrupt(r.file, t.Name, "has %d dimensions, the limit is %d", dims, ggufDims)
	}
	t.Shape = make([]int64, dims)
	for i := range t.Shape {
		d, err := r.u64()
		if err != nil {
			return t, asCorrupt(r.file, t.Name, err)
		}
		if d > maxInt64 {
			return t, corrupt(r.file, t.Name, "dimension %d is %d", i, d)
		}
		t.Shape[len(t.Shape)-1-i] = int64(d)
	}
	kind, err := r.u32()
	if err != nil {
		return t, asCorrupt(r.file, t.Name, err)
	}
	offset, err := r.u64()
	if err != nil {
		return t, asCorrupt(r.file, t.Name, err)
	}
	if kind >= uint32(len(ggmlTypes)) || ggmlTypes[kind].name == "" {
		return t, corrupt(r.file, t.Name, "ggml type %d is unknown or removed", kind)
	}
	t.DType = ggmlTypes[kind].name
	if offset > maxInt64 || offset%uint64(align) != 0 {
		return t, corrupt(r.file, t.Name, "its offset %d is not a multiple of the alignment %d", offset, align)
	}
	t.Offset = int64(offset)
	if t.Bytes, err = ggufSize(t.Shape, ggmlTypes[kind].block); err != nil {
		return t, corrupt(r.file, t.Name, "%s: %w", t.DType, err)
	}
	return t, nil
}

// ggufSize is the bytes of a tensor whose rows are made of whole blocks.
func ggufSize(shape []int64, b block) (int64, error) {
	if len(shape) > 0 && shape[len(shape)-1]%b.elems != 0 {
		return 0, fmt.Errorf("its rows of %d elements do not fill blocks of %d", shape[len(shape)-1], b.elems)
	}
	n, err := elements(shape)
	if err != nil {
		return 0, err
	}
	return b.size(n)
}

// count reads a 64-bit count of things that take at least each bytes.
func (r *ggufReader) count(what string, limit, each int64) (int64, error) {
	n, err := r.u64()
	if err != nil {
		return 0, err
	}
	if n > uint64(limit) || int64(n) > (r.size-r.pos)/each {
		return 0, fmt.Errorf("%d %s: over the limit of %d, or more than the file's %d bytes can hold", n, what, limit, r.size)
	}
	return int64(n), nil
}

func (r *ggufReader) bytes(n int64) ([]byte, error) {
	if n > r.size-r.pos {
		return nil, fmt.Errorf("ends at byte %d, where %d more are needed at %d", r.size, n, r.pos)
	}
	p := make([]byte, n)
	if _, err := io.ReadFull(r.src, p); err != nil {
		return nil, fmt.Errorf("cannot be read at %d: %w", r.pos, err)
	}
	r.pos += n
	return p, nil
}

func (r *ggufReader) text(limit int64) (string, error) {
	n, err := r.u64()
	if err != nil {
		return "", err
	}
	if n > uint64(limit) {
		return "", fmt.Errorf("a string of %d bytes, the limit is %d", n, limit)
	}
	p, err := r.bytes(int64(n))
	return string(p), err
}

func (r *ggufReader) u32() (uint32, error) {
	p, err := r.bytes(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(p), nil
}

func (r *ggufReader) u64() (uint64, error) {
	p, err := r.bytes(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(p), nil
}
