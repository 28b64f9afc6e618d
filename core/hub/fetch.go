package hub

import (
	"context"
	"crypto/sha1" //nolint:gosec // git names blobs by it
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/clademl/clade/sdk/contract"
)

// Names beside a blob while it comes, those of the Hugging Face tools.
const (
	incomplete = ".incomplete"
	locksDir   = ".locks"
)

// errStalled is a connection that brought nothing for Remote.Stall.
var errStalled = errors.New("nothing came")

// fetch brings one file into the blobs folder, where it appears whole or not at all. A part that an earlier run left is
// continued. Others that want the same file, also other programs, wait at its lock.
func (r *Remote) fetch(ctx context.Context, repo Repository, f File, cache string, moved func(int64)) error {
	folder := filepath.Join(cache, folderOf(repo.ID))
	blob := filepath.Join(folder, "blobs", f.etag())
	lock, err := lockBlob(ctx, cache, repo.ID, f)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	if info, err := os.Stat(blob); err == nil && info.Size() == f.Size {
		moved(f.Size)
		return nil
	}
	part := blob + incomplete
	at := r.Endpoint + "/" + repo.ID + "/resolve/" + repo.Commit + "/" + escape(f.Path)
	subject := repo.ID + "/" + f.Path
	for whole := range 2 { // a continued part that turns out wrong is brought once more from the start
		if err := r.bring(ctx, at, part, f, subject, moved); err != nil {
			return err
		}
		err := verify(part, f)
		if err == nil {
			return commit(part, blob)
		}
		_ = os.Remove(part)
		moved(-f.Size)
		if whole == 1 {
			return contract.Errorf(contract.ArtifactCorrupt, subject, "%w", err).WithNext("the hub or something on the way changes it; nothing was kept")
		}
	}
	return nil
}

func lockBlob(ctx context.Context, cache, id string, f File) (*flock.Flock, error) {
	dir := filepath.Join(cache, locksDir, folderOf(id))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, contract.Errorf(contract.InvalidArgument, cache, "the cache cannot be written: %w", err)
	}
	lock := flock.New(filepath.Join(dir, f.etag()+".lock"))
	if ok, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil || !ok {
		if ctx.Err() != nil {
			return nil, contract.Errorf(contract.Cancelled, f.Path, "%w", context.Cause(ctx))
		}
		return nil, contract.Errorf(contract.Unavailable, lock.Path(), "cannot be locked: %w", err)
	}
	return lock, nil
}

// bring appends to part until it has the file's size. Bytes that came count as progress: only attempts in a row that bring
// nothing are counted.
func (r *Remote) bring(ctx context.Context, at, part string, f File, subject string, moved func(int64)) error {
	out, err := os.OpenFile(part, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return contract.Errorf(contract.InvalidArgument, part, "cannot be written: %w", err)
	}
	defer func() { _ = out.Close() }()
	have, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return contract.Errorf(contract.InvalidArgument, part, "%w", err)
	}
	if have > f.Size { // of another file
		if err := out.Truncate(0); err != nil {
			return contract.Errorf(contract.InvalidArgument, part, "%w", err)
		}
		have = 0
	}
	moved(have)
	for have < f.Size {
		before := have
		err := r.patiently(ctx, subject, func() error {
			n, err := r.stream(ctx, at, out, have, f.Size, subject, moved)
			have += n
			if err != nil && have > before {
				return nil // ends this round of attempts
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := out.Sync(); err != nil {
		return contract.Errorf(contract.InvalidArgument, part, "%w", err)
	}
	return nil
}

// stream appends what one request brings and returns how much that was.
func (r *Remote) stream(ctx context.Context, at string, out *os.File, have, size int64, subject string, moved func(int64)) (int64, error) {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := r.Stall
	if stall == 0 {
		stall = 30 * time.Second
	}
	timer := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer timer.Stop()
	byteRange := ""
	if have > 0 {
		byteRange = "bytes=" + strconv.FormatInt(have, 10) + "-"
	}
	resp, err := r.get(inner, at, byteRange)
	if err != nil {
		return 0, stalled(inner, err, stall)
	}
	defer func() { _ = resp.Body.Close() }()
	skip := int64(0)
	switch {
	case resp.StatusCode == http.StatusOK:
		skip = have // the hub ignores ranges
	case resp.StatusCode != http.StatusPartialContent || have == 0:
		return 0, r.refused(resp, subject)
	case !strings.HasPrefix(resp.Header.Get("Content-Range"), "bytes "+strconv.FormatInt(have, 10)+"-"):
		return 0, contract.Errorf(contract.Unavailable, subject, "the hub sent the range %q, asked was %q", resp.Header.Get("Content-Range"), byteRange)
	}
	if _, err := io.CopyN(io.Discard, &ticking{resp.Body, timer, stall}, skip); err != nil {
		return 0, stalled(inner, err, stall)
	}
	n, err := io.Copy(&counting{out, moved}, io.LimitReader(&ticking{resp.Body, timer, stall}, size-have))
	switch {
	case err != nil:
		return n, stalled(inner, err, stall)
	case have+n < size:
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

func stalled(ctx context.Context, err error, stall time.Duration) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		return fmt.Errorf("%w for %s", errStalled, stall)
	}
	var full *os.PathError
	if errors.As(err, &full) {
		return contract.Errorf(contract.InvalidArgument, full.Path, "cannot be written: %w", full.Err)
	}
	return err
}

// ticking puts the stall off with every read that brings something.
type ticking struct {
	io.Reader
	timer *time.Timer
	stall time.Duration
}

func (t *ticking) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	if n > 0 {
		t.timer.Reset(t.stall)
	}
	return n, err
}

type counting struct {
	io.Writer
	moved func(int64)
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.moved(int64(n))
	return n, err
}

// verify compares the whole file with the hub's digest.
func verify(part string, f File) error {
	in, err := os.Open(part)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	var h hash.Hash
	if f.SHA256 != "" {
		h = sha256.New()
	} else {
		h = sha1.New() //nolint:gosec // git's
		_, _ = fmt.Fprintf(h, "blob %d\x00", f.Size)
	}
	if _, err := io.Copy(h, in); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != f.etag() {
		return fmt.Errorf("has digest %s, the hub names %s", got, f.etag())
	}
	return nil
}

// commit gives a verified file its name.
func commit(part, blob string) error {
	if err := os.Rename(part, blob); err != nil {
		return contract.Errorf(contract.InvalidArgument, blob, "cannot be written: %w", err)
	}
	return nil
}

func escape(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// folderOf is a repository's folder in the cache.
func folderOf(id string) string { return "models--" + strings.ReplaceAll(id, "/", "--") }
