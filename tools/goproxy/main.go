// Command goproxy writes a module of this tree as a file GOPROXY: what a plugin outside the tree builds with while the module is
// not published.
//
//	goproxy -module sdk -version v0.1.0 -out dist/goproxy
//
// The same tree gives the same files. Users set GOPROXY=file://.../dist/goproxy,<their own> and GONOSUMDB for the module.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	dir := flag.String("module", "", "folder of the module")
	version := flag.String("version", "", "its version, such as v0.1.0")
	out := flag.String("out", "", "folder of the proxy")
	flag.Parse()
	if err := run(*dir, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "goproxy:", err)
		os.Exit(1)
	}
}

func run(dir, version, out string) error {
	if dir == "" || version == "" || out == "" {
		return errors.New("-module, -version and -out are needed")
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	path := modfile.ModulePath(text)
	escaped, err := module.EscapePath(path)
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]string{"Version": version})
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := pack(&packed, module.Version{Path: path, Version: version}, dir); err != nil {
		return err
	}
	at := filepath.Join(out, filepath.FromSlash(escaped), "@v")
	for name, data := range map[string][]byte{
		"list": []byte(version + "\n"), version + ".info": info, version + ".mod": text, version + ".zip": packed.Bytes(),
	} {
		if err := write(filepath.Join(at, name), data); err != nil {
			return err
		}
	}
	return nil
}

// pack zips the module as the go command would, with the repository's licence where it has none of its own.
func pack(to *bytes.Buffer, m module.Version, dir string) error {
	checked, err := zip.CheckDir(dir)
	if err != nil {
		return err
	}
	if err := checked.Err(); err != nil {
		return err
	}
	files := make([]zip.File, 0, len(checked.Valid)+1)
	licence := false
	for _, path := range checked.Valid {
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		licence = licence || name == "LICENSE"
		files = append(files, file{filepath.ToSlash(name), path})
	}
	if !licence {
		files = append(files, file{"LICENSE", filepath.Join(dir, "..", "LICENSE")})
	}
	return zip.Create(to, m, files)
}

// write replaces a file unless it has this content.
func write(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// file is one of the zip's.
type file struct{ name, path string }

func (f file) Path() string                { return f.name }
func (f file) Lstat() (fs.FileInfo, error) { return os.Lstat(f.path) }

func (f file) Open() (io.ReadCloser, error) { return os.Open(f.path) }
