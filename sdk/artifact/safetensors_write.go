package artifact

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
)

// NewTensor is one tensor for WriteSafetensors.
type NewTensor struct {
	Name  string
	DType DType
	Shape []int64
	// Data is the elements, little-endian and row-major.
	Data []byte
}

// WriteSafetensors writes a file that readers of the format accept everywhere: ranges tile the payload in order of
// element size descending, then name, as the reference writer does, and the payload begins 8-aligned. The file appears
// under its name only when it is complete.
func WriteSafetensors(path string, tensors []NewTensor, metadata map[string]string) (err error) {
	order, header, err := newHeader(tensors, metadata)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := writeParts(w, header, order); err != nil {
		return err
	}
	if err := errors.Join(w.Flush(), f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func writeParts(w io.Writer, header []byte, tensors []NewTensor) error {
	var word [lengthBytes]byte
	binary.LittleEndian.PutUint64(word[:], uint64(len(header)))
	if _, err := w.Write(append(word[:], header...)); err != nil {
		return err
	}
	for _, t := range tensors {
		if _, err := w.Write(t.Data); err != nil {
			return err
		}
	}
	return nil
}

// newHeader checks the tensors and gives them in file order with the padded header.
func newHeader(tensors []NewTensor, metadata map[string]string) ([]NewTensor, []byte, error) {
	order := append([]NewTensor(nil), tensors...)
	sort.SliceStable(order, func(i, j int) bool {
		a, b := safetensorsTypes[order[i].DType], safetensorsTypes[order[j].DType]
		if a.bytes*b.elems != b.bytes*a.elems {
			return a.bytes*b.elems > b.bytes*a.elems
		}
		return order[i].Name < order[j].Name
	})
	type entry struct {
		DType   DType    `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	header := map[string]any{}
	if len(metadata) > 0 {
		header["__metadata__"] = metadata
	}
	at := int64(0)
	for _, t := range order {
		if _, dup := header[t.Name]; dup || t.Name == "__metadata__" {
			return nil, nil, fmt.Errorf("tensor %q: the name is taken", t.Name)
		}
		if err := checkNew(t); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		shape := append([]int64{}, t.Shape...)
		header[t.Name] = entry{t.DType, shape, [2]int64{at, at + int64(len(t.Data))}}
		at += int64(len(t.Data))
	}
	text, err := json.Marshal(header)
	if err != nil {
		return nil, nil, err
	}
	for len(text)%lengthBytes != 0 {
		text = append(text, ' ')
	}
	if len(text) > headerLimit {
		return nil, nil, fmt.Errorf("the header takes %d bytes, the limit is %d", len(text), headerLimit)
	}
	return order, text, nil
}

func checkNew(t NewTensor) error {
	unit, ok := safetensorsTypes[t.DType]
	if !ok {
		return fmt.Errorf("unknown dtype %q", t.DType)
	}
	n, err := elements(t.Shape)
	if err != nil {
		return err
	}
	want, err := unit.size(n)
	if err != nil {
		return err
	}
	if want != int64(len(t.Data)) {
		return fmt.Errorf("%s of shape %v takes %d bytes, got %d", t.DType, t.Shape, want, len(t.Data))
	}
	return nil
}
