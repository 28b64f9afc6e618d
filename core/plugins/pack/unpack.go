package pack

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxFiles bounds the number of entries of an archive, maxName the length of a name.
const (
	maxFiles = 20_000
	maxName  = 1024
)

// Limits bound an unpacking.
type Limits struct {
	// Bytes is the sum of all files that the archive was announced with; one byte more is refused.
	Bytes int64
	// Before is called before each file, with its path; an error ends the unpacking. May be nil.
	Before func(path string) error
}

// Unpack writes the files of an archive into a folder that is empty, each synced to the disk. On an error the folder holds
// what was written so far; the caller removes it.
func Unpack(from io.Reader, into *os.Root, l Limits) ([]File, error) {
	unzipped, err := gzip.NewReader(bufio.NewReader(from))
	if err != nil {
		return nil, wrap(err)
	}
	var files []File
	left := l.Bytes
	for tape, entries := tar.NewReader(unzipped), 0; ; entries++ {
		h, err := tape.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, wrap(err)
		}
		if entries == maxFiles {
			return nil, fmt.Errorf("holds more than %d entries", maxFiles)
		}
		if err := admissible(h); err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeDir {
			continue // a folder appears with its first file
		}
		if left -= h.Size; left < 0 {
			return nil, fmt.Errorf("unpacks to more than the %d bytes that it was announced with", l.Bytes)
		}
		if l.Before != nil {
			if err := l.Before(h.Name); err != nil {
				return nil, err
			}
		}
		f, err := write(tape, into, h)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		files = append(files, f)
	}
	// What follows the last entry is part of the checksum, and nothing else may.
	if n, err := io.Copy(io.Discard, io.LimitReader(unzipped, maxPadding)); err != nil || n == maxPadding {
		return nil, wrap(errors.Join(err, errors.New("something follows its end")))
	}
	if left != 0 {
		return nil, fmt.Errorf("unpacks to %d bytes, announced were %d", l.Bytes-left, l.Bytes)
	}
	return files, nil
}

// maxPadding is what tar writers may append behind the end: one record.
const maxPadding = 64 << 10

func wrap(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errors.New("is cut off")
	}
	return fmt.Errorf("is not a sound archive: %w", err)
}

// admissible says whether an entry may be written at all.
func admissible(h *tar.Header) error {
	switch {
	case h.Typeflag == tar.TypeSymlink || h.Typeflag == tar.TypeLink:
		return fmt.Errorf("%q is a link to %q; links are not unpacked", h.Name, h.Linkname)
	case h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir:
		return fmt.Errorf("%q is neither file nor folder", h.Name)
	case h.Typeflag == tar.TypeDir && path.Clean(h.Name) == ".":
		return nil
	case len(h.Name) > maxName || h.Size < 0:
		return fmt.Errorf("an entry has an impossible name or size")
	case strings.ContainsAny(h.Name, "\\\x00") || !filepath.IsLocal(filepath.FromSlash(h.Name)) || path.Clean(h.Name) != strings.TrimSuffix(h.Name, "/"):
		return fmt.Errorf("%q leaves the folder", h.Name)
	}
	return nil
}

func write(from io.Reader, into *os.Root, h *tar.Header) (_ File, err error) {
	if dir := path.Dir(h.Name); dir != "." {
		if err := into.MkdirAll(filepath.FromSlash(dir), 0o755); err != nil {
			return File{}, err
		}
	}
	// O_EXCL: an archive that writes a name twice is refused, also where the file system folds case.
	out, err := into.OpenFile(filepath.FromSlash(h.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return File{}, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, sum), from)
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("is cut off")
		}
		return File{}, err
	}
	if err := errors.Join(out.Chmod(modeOf(h.FileInfo().Mode())), out.Sync()); err != nil {
		return File{}, err
	}
	return File{h.Name, n, hex.EncodeToString(sum.Sum(nil))}, nil
}
