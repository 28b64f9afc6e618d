package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"time"

	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/sdk/contract"
)

// attempts is how often a transfer is begun.
const attempts = 4

// pause is the wait before the second attempt, doubled each time; stall is how long a transfer may bring nothing. Tests shorten
// them.
var (
	pause = 500 * time.Millisecond
	stall = 30 * time.Second
)

// passing marks an error that may be gone with the next try.
type passing struct{ error }

func (p passing) Unwrap() error { return p.error }

func temporary(err error) error { return passing{err} }

// retry calls try again while its error is a passing one.
func retry(ctx context.Context, try func() error) error {
	wait := pause
	for n := 1; ; n++ {
		err := try()
		var p passing
		if !errors.As(err, &p) {
			return err
		}
		if n == attempts || ctx.Err() != nil {
			return p.error
		}
		select {
		case <-ctx.Done():
			return p.error
		case <-time.After(wait):
		}
		wait *= 2
	}
}

// Download brings an archive into path, going on where an earlier one stopped. progress gets the bytes that are there; it may
// be nil. A file of another size or content is removed and refused.
func Download(ctx context.Context, s Source, a index.Archive, path string, progress func(done int64)) error {
	d := &download{source: s, archive: a, path: path, progress: progress}
	if d.progress == nil {
		d.progress = func(int64) {}
	}
	resumed, err := d.whole(ctx)
	if err != nil && resumed && contract.KindOf(err) == contract.PluginUntrusted {
		// What an earlier transfer left may be the bad part: once more from the start.
		_, err = d.whole(ctx)
	}
	if ctx.Err() != nil && err != nil {
		return contract.Errorf(contract.Cancelled, a.SHA256, "the download was stopped; the next one goes on where it was")
	}
	return err
}

type download struct {
	source   Source
	archive  index.Archive
	path     string
	progress func(int64)
}

// whole brings all of the file and judges it; resumed says that a part of it was there before.
func (d *download) whole(ctx context.Context) (resumed bool, err error) {
	out, err := os.OpenFile(d.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	sum := sha256.New()
	have, err := io.Copy(sum, io.LimitReader(out, d.archive.Size))
	if err != nil {
		return false, err
	}
	resumed = have > 0
	if have < d.archive.Size {
		err = retry(ctx, func() error {
			sum, have, err = d.more(ctx, out, sum, have)
			return err
		})
	}
	if err == nil {
		err = d.judge(sum, out)
	}
	if contract.KindOf(err) == contract.PluginUntrusted {
		_ = os.Remove(d.path)
	}
	return resumed, err
}

// judge says whether the file is the announced one.
func (d *download) judge(sum hash.Hash, out *os.File) error {
	if got := hex.EncodeToString(sum.Sum(nil)); got != d.archive.SHA256 {
		return contract.Errorf(contract.PluginUntrusted, d.archive.URLs[0], "has the digest %s, the index says %s", got, d.archive.SHA256).
			WithNext("tell the publisher; the file was not used")
	}
	return errors.Join(out.Truncate(d.archive.Size), out.Sync())
}

// more transfers what is missing behind have.
func (d *download) more(ctx context.Context, out *os.File, sum hash.Hash, have int64) (hash.Hash, int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, from, err := d.source.Archive(ctx, d.archive, have)
	if err != nil {
		return sum, have, err
	}
	defer func() { _ = r.Close() }() // only read
	if from != have {
		sum, have = sha256.New(), 0
	}
	if _, err := out.Seek(have, io.SeekStart); err != nil {
		return sum, have, err
	}
	watch := time.AfterFunc(stall, cancel)
	defer watch.Stop()
	buf := make([]byte, 256<<10)
	for {
		n, readErr := r.Read(buf)
		watch.Reset(stall)
		if have+int64(n) > d.archive.Size {
			return sum, have, d.size("has more than %d bytes, which the index says")
		}
		if n > 0 {
			if _, err := out.Write(buf[:n]); err != nil {
				return sum, have, err
			}
			_, _ = sum.Write(buf[:n]) // a hash never fails
			have += int64(n)
			d.progress(have)
		}
		switch {
		case errors.Is(readErr, io.EOF) && have == d.archive.Size:
			return sum, have, nil
		case errors.Is(readErr, io.EOF):
			return sum, have, d.size("ends before its %d bytes, which the index says")
		case readErr != nil && ctx.Err() != nil:
			return sum, have, temporary(contract.Errorf(contract.Unavailable, d.archive.URLs[0], "sends nothing for %s", stall))
		case readErr != nil:
			return sum, have, temporary(contract.Errorf(contract.Unavailable, d.archive.URLs[0], "%w", readErr))
		}
	}
}

func (d *download) size(format string) error {
	return contract.Errorf(contract.PluginUntrusted, d.archive.URLs[0], format, d.archive.Size).WithNext("tell the publisher; the file was not used")
}
