package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clademl/clade/sdk/contract"
)

// fileStat is what the system tells of a file without reading it. Two equal ones are the same bytes, unless someone set
// the clock back.
type fileStat struct {
	Device, Inode uint64
	Size          int64
	MTime, CTime  int64 // nanoseconds
}

// identified is one file of a set, as found.
type identified struct {
	name, real string
	stat       fileStat
}

// Identities computes byte identities of artifacts and remembers each while its files stay as they were: real path,
// device, inode, size, mtime and ctime. The zero value is ready; its methods may be called concurrently. Where the system
// tells no inode and no ctime nothing is remembered.
type Identities struct {
	mu   sync.Mutex
	seen map[string]string
}

// Of is SHA-256, in hex, over seed and then, in the order of their names, each file's name and bytes: the regular files
// directly in the folder at path, or the one file. Names that begin with a dot are not part of a model. Files that change
// while they are read are refused: the identity would be of bytes that were never together.
func (d *Identities) Of(ctx context.Context, seed, path string) (string, error) {
	before, sure, err := filesOf(path)
	if err != nil {
		return "", err
	}
	key := fmt.Sprintf("%q %+v", seed, before)
	d.mu.Lock()
	have, ok := d.seen[key]
	d.mu.Unlock()
	if ok && sure {
		return have, nil
	}
	sum, err := hashFiles(ctx, seed, before)
	if err != nil {
		return "", err
	}
	after, _, err := filesOf(path)
	if err != nil {
		return "", err
	}
	if !slices.Equal(before, after) {
		return "", corrupt(path, "", "its files changed while they were read").WithNext("try again when nothing writes there")
	}
	if sure {
		d.mu.Lock()
		if d.seen == nil {
			d.seen = map[string]string{}
		}
		d.seen[key] = sum
		d.mu.Unlock()
	}
	return sum, nil
}

// settling is how long after its last change a file's times tell that it did not change again: they have a grain.
const settling = 2 * time.Second

// Stamp names the files at path by what the system tells of them without reading them. Two equal ones are the same bytes, if both
// were settled: files whose last change was just now are not, nor are any where the system tells no inode and no ctime.
func Stamp(path string) (stamp string, settled bool, err error) {
	files, sure, err := filesOf(path)
	if err != nil {
		return "", false, err
	}
	young := time.Now().Add(-settling).UnixNano()
	for _, f := range files {
		sure = sure && f.stat.MTime < young && f.stat.CTime < young
	}
	return fmt.Sprintf("%+v", files), sure, nil
}

// filesOf lists the files at path sorted by name; sure is false when their stats do not tell that content stayed the same.
func filesOf(path string) (files []identified, sure bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false, notThere(path, err)
	}
	paths := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, false, notThere(path, err)
		}
		paths = paths[:0]
		for _, e := range entries { // ReadDir sorts
			if !strings.HasPrefix(e.Name(), ".") {
				paths = append(paths, filepath.Join(path, e.Name()))
			}
		}
	}
	sure = true
	for _, p := range paths {
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			return nil, false, notThere(p, err)
		}
		info, err := os.Stat(real)
		if err != nil {
			return nil, false, notThere(p, err)
		}
		if !info.Mode().IsRegular() {
			continue
		}
		stat, ok := statOf(info)
		sure = sure && ok
		files = append(files, identified{filepath.Base(p), real, stat})
	}
	if len(files) == 0 {
		return nil, false, contract.Errorf(contract.NotFound, path, "holds no file")
	}
	return files, sure, nil
}

// hashFiles digests lengths beside names and bytes, so that no two sets run together to one text.
func hashFiles(ctx context.Context, seed string, files []identified) (string, error) {
	h := sha256.New()
	put := func(text string) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(text)))
		_, _ = h.Write(n[:]) // a hash never fails
		_, _ = io.WriteString(h, text)
	}
	put(seed)
	buf := make([]byte, 1<<20)
	for _, file := range files {
		put(file.name)
		f, size, err := openRegular(file.real)
		if err != nil {
			return "", err
		}
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(size))
		_, _ = h.Write(n[:])
		err = copyAll(ctx, h, f, buf)
		_ = f.Close() // only read
		if err != nil {
			return "", contract.Errorf(contract.KindOf(err), file.name, "cannot be hashed: %w", err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func copyAll(ctx context.Context, to io.Writer, from io.Reader, buf []byte) error {
	for {
		if err := ctx.Err(); err != nil {
			return contract.Errorf(contract.Cancelled, "", "%w", err)
		}
		n, err := from.Read(buf)
		_, _ = to.Write(buf[:n]) // a hash never fails
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return contract.Errorf(contract.ArtifactCorrupt, "", "%w", err)
		}
	}
}
