package prefix

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Disk keeps payloads' bytes in files of one folder, within a quota. Several processes may share it: one writes at a time, a file is
// written aside and renamed, and its name says what it must hold.
type Disk struct {
	dir   string
	quota int64

	mu      sync.Mutex
	damaged uint64
}

const (
	partPrefix = "part-"
	lockName   = "lock"
)

// Stored is a run of tokens as a Disk keeps it.
type Stored struct {
	// From and End are the positions of the tokens [From, End). A run that begins behind another one's end, which is how all but
	// the first begin, is of use with it alone.
	From, End int
	// Label tells a person whose it is.
	Label string
}

// OpenDisk takes or makes the folder, readable by its user alone. A folder that others may read or write is refused, and one that
// cannot be written.
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
	d := &Disk{dir: dir, quota: quota}
	return d, d.alone(func() error { return d.makeRoom(0) })
}

// alone runs write while no other process, and no other goroutine, writes to the folder.
func (d *Disk) alone(write func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return locked(d.dir, write)
}

func locked(dir string, write func() error) (err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		defer func() { err = errors.Join(err, f.Close()) }()
		err = lock(f)
	}
	if err == nil {
		err = write()
	}
	if err != nil {
		return fmt.Errorf("prefix cache: %w", err)
	}
	return nil
}

func (d *Disk) path(k Key) string { return filepath.Join(d.dir, k.name()) }

// Get reads a run. One that is damaged is removed and counted as absent.
func (d *Disk) Get(k Key) (Stored, []byte, bool) {
	path := d.path(k)
	data, err := os.ReadFile(path)
	if err != nil {
		return Stored{}, nil, false
	}
	run, body, ok := unseal(k, data)
	if !ok {
		_ = os.Remove(path)
		d.mu.Lock()
		d.damaged++
		d.mu.Unlock()
		return Stored{}, nil, false
	}
	d.touch(k, run.From)
	return run, body, true
}

// perToken is how much longer ago each token of depth makes a run's last use: more than the files of a text come apart when they are
// written or read one behind the other.
const perToken = time.Millisecond

// touch gives a run its place in the order of use. What is deeper in its text goes sooner: without what is before it, it is of no use.
// A failure costs only the place.
func (d *Disk) touch(k Key, depth int) {
	at := time.Now().Add(-time.Duration(depth) * perToken)
	_ = os.Chtimes(d.path(k), at, at)
}

// Has reports whether a run seems to be there.
func (d *Disk) Has(k Key) bool {
	_, err := os.Stat(d.path(k))
	return err == nil
}

// Chain finds the runs that hold the longest beginning of a text, one behind the other. Only names and headers are looked at.
func (d *Disk) Chain(id Identity, tokens []int32) []Key {
	names, err := os.ReadDir(d.dir)
	if err != nil {
		return nil
	}
	blocks, there := id.blocks(tokens), map[Key]bool{}
	var ends []int
	for _, e := range names {
		if k, ok := parseName(e.Name()); ok && blocks[k.Block] && k.End > 0 && k.End <= len(tokens) {
			there[k] = true
			ends = append(ends, k.End)
		}
	}
	slices.Sort(ends)
	ends = slices.Compact(ends)
	from := map[int]int{} // where the run that ends at a position begins
	keys := map[int]Key{}
	reached := map[int]bool{0: true}          // whether the tokens before a position are all there
	for _, k := range id.Keys(tokens, ends) { // ascending: what a run begins behind is known
		run, ok := Stored{}, there[k]
		if ok {
			run, ok = d.Head(k)
		}
		if ok && run.End == k.End && run.From < k.End && reached[run.From] {
			reached[k.End], from[k.End], keys[k.End] = true, run.From, k
		}
	}
	var chain []Key
	for i := len(ends) - 1; i >= 0; i-- {
		if !reached[ends[i]] {
			continue
		}
		for at := ends[i]; at > 0; at = from[at] {
			chain = append(chain, keys[at])
		}
		break
	}
	slices.Reverse(chain)
	return chain
}

// Head reads what a file says of its run. Only Get looks whether it holds that.
func (d *Disk) Head(k Key) (Stored, bool) {
	f, err := os.Open(d.path(k))
	if err != nil {
		return Stored{}, false
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, int64(maxHead)))
	if err != nil {
		return Stored{}, false
	}
	run, _, _, ok := readHead(data)
	return run, ok
}

// Damaged is how many files were removed because they did not hold what they should.
func (d *Disk) Damaged() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.damaged
}

// Put writes a run, having removed those used longest ago until it fits the quota. What is larger than the quota is not kept.
func (d *Disk) Put(k Key, run Stored, body []byte) error {
	head := seal(k, run, body)
	size := int64(len(head) + len(body))
	if size > d.quota {
		return nil
	}
	return d.alone(func() error {
		if err := d.makeRoom(size); err != nil {
			return err
		}
		tmp, err := os.CreateTemp(d.dir, partPrefix+"*")
		if err != nil {
			return err
		}
		for _, part := range [][]byte{head, body} {
			if err == nil {
				_, err = tmp.Write(part)
			}
		}
		if err = errors.Join(err, tmp.Close()); err == nil {
			err = os.Rename(tmp.Name(), d.path(k))
		}
		if err != nil {
			_ = os.Remove(tmp.Name())
			return err
		}
		d.touch(k, run.From)
		return nil
	})
}

// makeRoom removes runs until bytes more fit. Unfinished files are nobody's: who writes holds the lock, which is ours.
func (d *Disk) makeRoom(bytes int64) error {
	files, err := list(d.dir, func(path string) { _ = os.Remove(path) })
	if err != nil {
		return err
	}
	total := bytes
	for _, f := range files {
		total += f.size
	}
	for _, f := range files {
		if total <= d.quota {
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
func ClearDisk(dir string) (freed int64, err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	err = locked(dir, func() error {
		files, err := list(dir, func(path string) { _ = os.Remove(path) })
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			freed += f.size
		}
		return nil
	})
	return freed, err
}

// Held is what a folder holds under one label.
type Held struct {
	Label  string
	Runs   int
	Tokens int
	Bytes  int64
	Used   time.Time // the last time
}

// ListDisk says what a folder holds, by label.
func ListDisk(dir string) ([]Held, error) {
	files, err := list(dir, func(string) {})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("prefix cache: %w", err)
	}
	d, at := &Disk{dir: dir}, map[string]int{}
	var out []Held
	for _, f := range files {
		k, ok := parseName(filepath.Base(f.path))
		if !ok {
			continue
		}
		run, ok := d.Head(k)
		if !ok {
			run = Stored{Label: "damaged"}
		}
		if _, seen := at[run.Label]; !seen {
			at[run.Label] = len(out)
			out = append(out, Held{Label: run.Label})
		}
		h := &out[at[run.Label]]
		h.Runs, h.Tokens, h.Bytes = h.Runs+1, h.Tokens+run.End-run.From, h.Bytes+f.size
		if f.used.After(h.Used) {
			h.Used = f.used
		}
	}
	return out, nil
}
