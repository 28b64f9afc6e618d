package prefix

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A file is diskMagic, a digest of the key and all that follows, the run's positions, its label behind the label's length, and the
// body.
const (
	diskMagic = "clade prefix 2\n"
	maxLabel  = 200
	maxHead   = len(diskMagic) + sha256.Size + 4 + 4 + 1 + maxLabel
)

// seal makes what stands before the body: neither a changed nor a renamed file is believed.
func seal(k Key, run Stored, body []byte) []byte {
	label := run.Label[:min(len(run.Label), maxLabel)]
	var rest []byte
	rest = binary.LittleEndian.AppendUint32(rest, uint32(run.From))
	rest = binary.LittleEndian.AppendUint32(rest, uint32(run.End))
	rest = append(append(rest, byte(len(label))), label...)
	sum := digest(k, rest, body)
	return slices.Concat([]byte(diskMagic), sum[:], rest)
}

// readHead reads the beginning of a file; sum is the digest that it states, size what stands before the body.
func readHead(data []byte) (run Stored, sum []byte, size int, ok bool) {
	data, ok = bytes.CutPrefix(data, []byte(diskMagic))
	if !ok || len(data) < sha256.Size+9 {
		return Stored{}, nil, 0, false
	}
	sum, data = data[:sha256.Size], data[sha256.Size:]
	run.From, run.End = int(binary.LittleEndian.Uint32(data)), int(binary.LittleEndian.Uint32(data[4:]))
	n := int(data[8])
	if n > maxLabel || len(data) < 9+n {
		return Stored{}, nil, 0, false
	}
	run.Label = string(data[9 : 9+n])
	return run, sum, len(diskMagic) + sha256.Size + 9 + n, true
}

func unseal(k Key, data []byte) (Stored, []byte, bool) {
	run, want, size, ok := readHead(data)
	if !ok {
		return Stored{}, nil, false
	}
	sum := digest(k, data[len(diskMagic)+sha256.Size:size], data[size:])
	return run, data[size:], bytes.Equal(sum[:], want)
}

func digest(k Key, parts ...[]byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(k.Sum[:])
	for _, p := range parts {
		h.Write(p)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// file is one run's.
type file struct {
	path string
	size int64
	used time.Time
}

// list finds the runs of a folder, those used longest ago first. unfinished gets the files that are none.
func list(dir string, unfinished func(path string)) ([]file, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []file
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process removed it
		}
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, e.Name())
		switch {
		case !info.Mode().IsRegular():
		case strings.HasPrefix(e.Name(), partPrefix):
			unfinished(path)
		case strings.HasSuffix(e.Name(), diskSuffix):
			out = append(out, file{path, info.Size(), info.ModTime()})
		}
	}
	slices.SortFunc(out, func(a, b file) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path)) })
	return out, nil
}
