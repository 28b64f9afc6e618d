package artifact

import (
	"encoding/binary"
	"errors"
	"io"
	"path/filepath"
	"sort"

	"github.com/clademl/clade/sdk/contract"
)

// headerLimit is the reference implementation's cap on a safetensors header, in bytes.
const headerLimit = 100_000_000

// lengthBytes is the size of the header's length word.
const lengthBytes = 8

// asCorrupt keeps a *contract.Error as it is and makes any other error ArtifactCorrupt about file and part.
func asCorrupt(file, part string, err error) error {
	var known *contract.Error
	if errors.As(err, &known) {
		return known
	}
	return corrupt(file, part, "%w", err)
}

// openShards reads every safetensors header of a directory artifact, refusing one tensor name in two files.
func (a *Artifact) openShards(paths []string) error {
	if err := a.readConfigs(); err != nil {
		return err
	}
	listed, err := a.readIndex()
	if err != nil {
		return err
	}
	if err := a.readHeaders(paths, listed); err != nil {
		return err
	}
	return a.checkIndex(listed)
}

// readHeaders adds the tensors of each file, of which some are listed in an index.
func (a *Artifact) readHeaders(paths []string, listed []indexed) error {
	a.metadata = map[string]string{}
	for _, path := range paths {
		f, size, err := openRegular(path)
		if err != nil {
			return err
		}
		file := filepath.Base(path)
		a.files[file] = f
		tensors, meta, err := readSafetensors(file, f, size, listed)
		if err != nil {
			return err
		}
		for _, t := range tensors {
			if i, dup := a.index[t.Name]; dup {
				return corrupt(file, t.Name, "is in %s too", a.tensors[i].File)
			}
			a.index[t.Name] = len(a.tensors)
			a.tensors = append(a.tensors, t)
		}
		for k, v := range meta {
			a.metadata[k] = v
		}
	}
	return nil
}

// readSafetensors reads and checks one header. The rules are those of the safetensors crate: the header fits its cap and
// the file, ranges follow one another from zero without holes or overlap up to the end of the file, and each range has
// exactly the bytes of dtype x shape. Beyond it, duplicate names are refused (the crate keeps the last). A tensor that is listed
// and not in the header is named before the hole that it may have left.
func readSafetensors(file string, r io.ReaderAt, size int64, listed []indexed) ([]Tensor, map[string]string, error) {
	header, err := safetensorsHeader(file, r, size)
	if err != nil {
		return nil, nil, err
	}
	tensors, meta, err := parseSafetensors(file, header)
	if err != nil {
		return nil, nil, err
	}
	if err := checkListed(file, tensors, listed); err != nil {
		return nil, nil, err
	}
	start := int64(lengthBytes + len(header))
	if err := checkRanges(file, tensors, size-start); err != nil {
		return nil, nil, err
	}
	for i := range tensors {
		tensors[i].Offset += start
	}
	return tensors, meta, nil
}

func safetensorsHeader(file string, r io.ReaderAt, size int64) ([]byte, error) {
	if size < lengthBytes {
		return nil, corrupt(file, "header", "the file has %d bytes, too few for a header length", size)
	}
	var word [lengthBytes]byte
	if _, err := r.ReadAt(word[:], 0); err != nil {
		return nil, corrupt(file, "header", "cannot be read: %w", err)
	}
	n := binary.LittleEndian.Uint64(word[:])
	switch {
	case n > headerLimit:
		return nil, corrupt(file, "header", "its length %d is over the limit of %d bytes", n, headerLimit)
	case int64(n) > size-lengthBytes:
		return nil, corrupt(file, "header", "its length %d goes beyond the file's %d bytes", n, size)
	}
	header := make([]byte, n)
	if _, err := r.ReadAt(header, lengthBytes); err != nil {
		return nil, corrupt(file, "header", "cannot be read: %w", err)
	}
	if n == 0 || header[0] != '{' {
		return nil, corrupt(file, "header", "does not begin with {")
	}
	return header, nil
}

// parseSafetensors reads the header's JSON; offsets are still relative to the payload.
func parseSafetensors(file string, header []byte) ([]Tensor, map[string]string, error) {
	var tensors []Tensor
	meta := map[string]string{}
	r := &jsonReader{buf: header}
	err := r.object(func(key string) error {
		if key == "__metadata__" {
			return r.object(func(k string) (err error) {
				meta[k], err = r.text()
				return err
			})
		}
		t, err := parseTensor(r, file, key)
		tensors = append(tensors, t)
		return err
	})
	if err == nil {
		err = r.end()
	}
	if err != nil {
		return nil, nil, asCorrupt(file, "header", err)
	}
	return tensors, meta, nil
}

// shapeLimit is the most dimensions a tensor may have.
const shapeLimit = 16

func parseTensor(r *jsonReader, file, name string) (Tensor, error) {
	t := Tensor{Name: name, File: file}
	var span []int64
	seen := 0
	err := r.object(func(key string) (err error) {
		switch key {
		case "dtype":
			var dtype string
			dtype, err = r.text()
			t.DType = DType(dtype)
			seen++
		case "shape":
			t.Shape, err = naturals(r, shapeLimit)
			seen++
		case "data_offsets":
			span, err = naturals(r, 2)
			seen++
		default:
			err = r.skip()
		}
		return err
	})
	if err != nil {
		return t, asCorrupt(file, name, err)
	}
	if seen != 3 || len(span) != 2 {
		return t, corrupt(file, name, "needs dtype, shape and two data_offsets")
	}
	unit, ok := safetensorsTypes[t.DType]
	if !ok {
		return t, corrupt(file, name, "unknown dtype %q", clip(string(t.DType)))
	}
	if span[1] < span[0] {
		return t, corrupt(file, name, "its data_offsets %d..%d end before they begin", span[0], span[1])
	}
	t.Offset, t.Bytes = span[0], span[1]-span[0]
	n, err := elements(t.Shape)
	if err != nil {
		return t, corrupt(file, name, "%w", err)
	}
	want, err := unit.size(n)
	if err != nil {
		return t, corrupt(file, name, "%w", err)
	}
	if want != t.Bytes {
		return t, corrupt(file, name, "%s of shape %v takes %d bytes, its data_offsets span %d", t.DType, t.Shape, want, t.Bytes)
	}
	return t, nil
}

// checkListed misses what the index lists in the file.
func checkListed(file string, tensors []Tensor, listed []indexed) error {
	if len(listed) == 0 {
		return nil
	}
	held := make(map[string]bool, len(tensors))
	for _, t := range tensors {
		held[t.Name] = true
	}
	for _, want := range listed {
		if want.shard == file && !held[want.tensor] {
			return corrupt(indexName, want.tensor, "is listed in %s but that file does not hold it", clip(file))
		}
	}
	return nil
}

// naturals reads a list of at most limit non-negative integers.
func naturals(r *jsonReader, limit int) ([]int64, error) {
	out := []int64{}
	err := r.array(func(i int) error {
		if i == limit {
			return r.fail("more than %d numbers", limit)
		}
		v, err := r.value()
		if err != nil {
			return err
		}
		n, ok := v.(int64)
		if !ok || n < 0 {
			return r.fail("found %s where a whole number belongs", kindOf(v))
		}
		out = append(out, n)
		return nil
	})
	return out, err
}

// checkRanges holds the payload's rule: sorted by offset, the ranges tile it exactly.
func checkRanges(file string, tensors []Tensor, payload int64) error {
	order := make([]*Tensor, len(tensors))
	for i := range tensors {
		order[i] = &tensors[i]
	}
	sort.Slice(order, func(i, j int) bool {
		if order[i].Offset != order[j].Offset {
			return order[i].Offset < order[j].Offset
		}
		return order[i].Bytes < order[j].Bytes
	})
	at, before := int64(0), "the header"
	for _, t := range order {
		end := t.Offset + t.Bytes // both were read as int64 and end is one of them
		switch {
		case end > payload:
			return corrupt(file, t.Name, "its bytes %d..%d go beyond the file's payload of %d bytes", t.Offset, end, payload)
		case t.Offset < at:
			return corrupt(file, t.Name, "its bytes %d..%d overlap %s", t.Offset, end, clip(before))
		case t.Offset > at:
			return corrupt(file, "header", "bytes %d..%d, between %s and %s, are of no tensor: one is missing there", at, t.Offset, clip(before), clip(t.Name))
		}
		at, before = end, t.Name
	}
	if at != payload {
		return corrupt(file, "header", "%d bytes follow the last tensor, %s: one is missing there, or they are none's", payload-at, clip(before))
	}
	return nil
}
