package prefix

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Identity names everything but the tokens that a payload depends on: artifact bytes, graph id and revision, kernel set
// revision, runtime version, device, dtype, KV scheme, overrides, adapters, media, tokenizer digest. Fields are separated by
// the caller so that no two lists join to one text.
type Identity []string

// Key names a run: the identity and all tokens up to the run's end.
type Key [sha256.Size]byte

// Keys are those of the runs of tokens that end at each multiple of Run and at the last token.
func (id Identity) Keys(tokens []int32) []Key {
	h := sha256.New()
	for _, field := range id {
		_ = binary.Write(h, binary.LittleEndian, uint64(len(field))) // a hash takes all
		h.Write([]byte(field))
	}
	seed := h.Sum(nil)
	var out []Key
	for from := 0; from < len(tokens); from += Run {
		to := min(from+Run, len(tokens))
		h.Reset()
		h.Write(seed)
		_ = binary.Write(h, binary.LittleEndian, tokens[from:to])
		seed = h.Sum(nil)
		out = append(out, Key(seed))
	}
	return out
}

// Disk keeps payloads' bytes in files of one folder, within a quota. Several processes may share it: a file is written aside
// and renamed, and its name says what it must hold.
type Disk struct {
	dir   string
	quota int64

	mu      sync.Mutex
	damaged uint64
}

const (
	diskSuffix = ".kv"
	diskMagic  = "clade prefix 1\n"
)

// OpenDisk takes or makes the folder, readable by its user alone. A folder that others may write is refused.
func OpenDisk(dir string, quota int64) (*Disk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("prefix cache: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("prefix cache: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("prefix cache: %s is no folder", dir)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("prefix cache: %s can be read or written by others (mode %o): chmod 700 it", dir, mode)
	}
	return &Disk{dir: dir, quota: quota}, nil
}

func (d *Disk) path(k Key) string { return filepath.Join(d.dir, hex.EncodeToString(k[:])+diskSuffix) }

// Get reads a run. One that is damaged is removed and counted as absent.
func (d *Disk) Get(k Key) ([]byte, bool) {
	path := d.path(k)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, false
	}
	body, ok := unseal(k, data)
	if !ok {
		_ = os.Remove(path)
		d.mu.Lock()
		d.damaged++
		d.mu.Unlock()
		return nil, false
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // its place in the order of use; a failure costs only that
	return body, true
}

// Has reports whether a run seems to be there.
func (d *Disk) Has(k Key) bool {
	_, err := os.Stat(d.path(k))
	return err == nil
}

// Damaged is how many files were removed because they did not hold what they should.
func (d *Disk) Damaged() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.damaged
}

// Put writes a run and then removes those used longest ago until the quota holds. What is larger than the quota is not kept.
func (d *Disk) Put(k Key, body []byte) error {
	data := seal(k, body)
	if int64(len(data)) > d.quota {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.makeRoom(int64(len(data))); err != nil {
		return fmt.Errorf("prefix cache: %w", err)
	}
	tmp, err := os.CreateTemp(d.dir, "part-*")
	if err != nil {
		return fmt.Errorf("prefix cache: %w", err)
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), d.path(k))
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("prefix cache: %w", err)
	}
	return nil
}

// partAge is after how long an unfinished file is nobody's any more.
const partAge = time.Hour

func (d *Disk) makeRoom(bytes int64) error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	type file struct {
		path string
		size int64
		used time.Time
	}
	var files []file
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process removed it
		}
		if err != nil {
			return err
		}
		path := filepath.Join(d.dir, e.Name())
		if strings.HasPrefix(e.Name(), "part-") && time.Since(info.ModTime()) > partAge {
			_ = os.Remove(path)
			continue
		}
		if !info.Mode().IsRegular() || !strings.HasSuffix(e.Name(), diskSuffix) {
			continue
		}
		files = append(files, file{path, info.Size(), info.ModTime()})
		total += info.Size()
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path)) })
	for _, f := range files {
		if total+bytes <= d.quota {
			return nil
		}
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= f.size
	}
	return nil
}

// Clear removes every run and says how many bytes that freed.
func (d *Disk) Clear() (int64, error) { return ClearDisk(d.dir) }

// ClearDisk removes every run of a folder, whether or not a process uses it.
func ClearDisk(dir string) (int64, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("prefix cache: %w", err)
	}
	freed := int64(0)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), diskSuffix) && !strings.HasPrefix(e.Name(), "part-") {
			continue
		}
		if info, err := e.Info(); err == nil {
			freed += info.Size()
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return freed, fmt.Errorf("prefix cache: %w", err)
		}
	}
	return freed, nil
}

// seal puts the key and a digest of key and body before the body, so that neither a changed nor a renamed file is believed.
func seal(k Key, body []byte) []byte {
	sum := digest(k, body)
	out := make([]byte, 0, len(diskMagic)+len(sum)+len(body))
	out = append(out, diskMagic...)
	out = append(out, sum[:]...)
	return append(out, body...)
}

func unseal(k Key, data []byte) ([]byte, bool) {
	head := len(diskMagic) + sha256.Size
	if len(data) < head || !bytes.HasPrefix(data, []byte(diskMagic)) {
		return nil, false
	}
	body := data[head:]
	sum := digest(k, body)
	return body, bytes.Equal(sum[:], data[len(diskMagic):head])
}

func digest(k Key, body []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(k[:])
	h.Write(body)
	return [sha256.Size]byte(h.Sum(nil))
}
