package pack

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// File is one file of an archive.
type File struct {
	// Path is relative, with slashes.
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Archive is what Pack made.
type Archive struct {
	// Size is the archive's, Unpacked the sum of its files.
	Size, Unpacked int64
	SHA256         string
	Files          []File
}

// Pack writes the regular files of dir, except those that skip names, as an archive. A link in the folder is an error.
func Pack(to io.Writer, dir string, skip func(path string) bool) (Archive, error) {
	var out Archive
	counted := &counter{to: to, hash: sha256.New()}
	zipped, err := gzip.NewWriterLevel(counted, gzip.DefaultCompression)
	if err != nil {
		return out, err
	}
	tape := tar.NewWriter(zipped)
	// WalkDir goes in lexical order.
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if skip != nil && skip(rel) {
			return nil
		}
		f, err := add(tape, path, rel)
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		out.Files = append(out.Files, f)
		out.Unpacked += f.Size
		return nil
	})
	if err != nil {
		return out, err
	}
	if err := tape.Close(); err != nil {
		return out, err
	}
	if err := zipped.Close(); err != nil {
		return out, err
	}
	out.Size, out.SHA256 = counted.n, hex.EncodeToString(counted.hash.Sum(nil))
	return out, nil
}

func add(tape *tar.Writer, path, rel string) (File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return File{}, err
	}
	if !info.Mode().IsRegular() {
		return File{}, fmt.Errorf("is not a regular file, and archives hold nothing else")
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: rel, Size: info.Size(), Mode: int64(modeOf(info.Mode())), Format: tar.FormatPAX}
	if err := tape.WriteHeader(h); err != nil {
		return File{}, err
	}
	in, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer func() { _ = in.Close() }() // only read
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(tape, sum), in)
	if err == nil && n != info.Size() {
		err = fmt.Errorf("changed while it was read")
	}
	return File{rel, n, hex.EncodeToString(sum.Sum(nil))}, err
}

// modeOf is read-only for all, executable if the file is.
func modeOf(m fs.FileMode) fs.FileMode {
	if m.Perm()&0o111 != 0 {
		return 0o555
	}
	return 0o444
}

type counter struct {
	to   io.Writer
	hash hash.Hash
	n    int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	_, _ = c.hash.Write(p[:n]) // a hash never fails
	return n, err
}
