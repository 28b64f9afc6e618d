package plugins

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/clademl/clade/core/plugins/pack"
	"github.com/clademl/clade/sdk/contract"
)

// Verifier hashes executables before they are started. It remembers digests by file identity (device, inode, size, time of
// content and of status), in File across runs when that is set. The zero value is ready.
type Verifier struct {
	// File holds the remembered digests; a damaged one is as good as none.
	File string

	mu      sync.Mutex
	known   map[string]identity
	learned bool // known is more than File has
}

// settled is how long a file must have been left alone for its identity to stand for its content.
const settled = time.Second

// identity is a file's state when it was hashed. A write changes mtime and ctime; ctime cannot be set back.
type identity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Size   int64  `json:"size"`
	MTime  int64  `json:"mtime_ns"`
	CTime  int64  `json:"ctime_ns"`
	SHA256 string `json:"sha256"`
}

// Verify says whether in's executable and the files beside it are the ones that its receipt states, and its runtime the one
// that was installed.
func (v *Verifier) Verify(in Installed) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	defer v.save()
	if err := v.file(in.Exe, in.receipt.Size, in.Digest, "its receipt states"); err != nil {
		return err
	}
	if err := v.files(in.Dir, in.receipt.Files, "its receipt states"); err != nil {
		return err
	}
	if in.Runtime == nil {
		return nil
	}
	return v.files(in.Runtime.Dir, in.Runtime.Files, runtimeFile+" states")
}

func (v *Verifier) files(dir string, files []pack.File, who string) error {
	for _, f := range files {
		if err := v.file(filepath.Join(dir, filepath.FromSlash(f.Path)), f.Size, f.SHA256, who); err != nil {
			return err
		}
	}
	return nil
}

// file holds one file to its digest; under mu.
func (v *Verifier) file(path string, size int64, want, who string) error {
	if err := guarded(path); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return contract.Errorf(contract.PluginMissing, path, "%w", err)
	case !info.Mode().IsRegular():
		return contract.Errorf(contract.PluginUntrusted, path, "is not a regular file")
	}
	sum := ""
	if info.Size() == size {
		if sum, err = v.digest(path, info); err != nil {
			return err
		}
	}
	if sum != want {
		return contract.Errorf(contract.PluginUntrusted, path, "differs from the one that %s", who).
			WithNext("build or install the plugin again")
	}
	return nil
}

// digest hashes a file, or remembers; under mu.
func (v *Verifier) digest(path string, info os.FileInfo) (string, error) {
	now, ok := identify(info)
	if v.known == nil {
		v.known = v.load()
	}
	if k, seen := v.known[path]; ok && seen {
		now.SHA256 = k.SHA256
		if k == now {
			return k.SHA256, nil
		}
	}
	sum, _, err := hashFile(path)
	if err != nil {
		return "", err
	}
	// A file that changed within the clock's grain could change again without a trace.
	if ok && time.Since(time.Unix(0, now.CTime)) > settled {
		now.SHA256 = sum
		v.known[path] = now
		v.learned = true
	}
	return sum, nil
}

func (v *Verifier) load() map[string]identity {
	known := map[string]identity{}
	if v.File == "" || guarded(v.File) != nil {
		return known
	}
	data, err := readSmall(v.File)
	if err != nil || json.Unmarshal(data, &known) != nil {
		return map[string]identity{}
	}
	return known
}

// save keeps the digests for the next run; without them that run hashes again, which is slower and no less safe.
func (v *Verifier) save() {
	if v.File == "" || !v.learned {
		return
	}
	v.learned = false
	data, err := json.Marshal(v.known)
	if err != nil || os.MkdirAll(filepath.Dir(v.File), 0o700) != nil {
		return
	}
	_ = replace(v.File, data)
}

func hashFile(path string) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, contract.Errorf(contract.PluginMissing, path, "%w", err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	size, err = io.Copy(h, f)
	if err != nil {
		return "", 0, contract.Errorf(contract.PluginUntrusted, path, "%w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}
