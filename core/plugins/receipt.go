package plugins

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/clademl/clade/core/plugins/pack"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
	"github.com/clademl/clade/sdk/family"
)

// smallFile bounds a manifest or receipt, describeTime the question to a new executable, describeBytes its answer.
const (
	smallFile     = 1 << 20
	describeTime  = 30 * time.Second
	describeBytes = 4 << 20
)

// receipt is receipt.json: what was installed.
type receipt struct {
	Name           string `json:"name"`
	Version        string `json:"version"`
	ExeSHA256      string `json:"exe_sha256"`
	ManifestSHA256 string `json:"manifest_sha256"`
	Size           int64  `json:"size"`
	// Files are all others of the folder, libraries of its own among them.
	Files []pack.File `json:"files,omitempty"`
}

func readReceipt(path string) (r receipt, err error) {
	data, err := readSmall(path)
	if err != nil {
		return r, err
	}
	if err := r.parse(data); err != nil {
		return r, contract.Errorf(contract.PluginUntrusted, path, "%w", err).WithNext("build or install the plugin again")
	}
	return r, nil
}

// parse is strict: a receipt with fields of a later version vouches for things that this host would not check.
func (r *receipt) parse(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(r); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("holds more than one value")
	}
	for _, f := range r.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) || f.Size < 0 || !isSHA256(f.SHA256) {
			return fmt.Errorf("the file %q is malformed", f.Path)
		}
	}
	if r.Name == "" || r.Version == "" || r.Size <= 0 || !isSHA256(r.ExeSHA256) || !isSHA256(r.ManifestSHA256) {
		return errors.New("a field is missing or malformed")
	}
	return nil
}

func isSHA256(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && strings.ToLower(s) == s
}

func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, contract.Errorf(contract.PluginMissing, path, "%w", err)
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, smallFile+1))
	if err == nil && len(data) > smallFile {
		err = fmt.Errorf("is larger than %d bytes", smallFile)
	}
	if err != nil {
		return nil, contract.Errorf(contract.PluginMismatch, path, "%w", err)
	}
	return data, nil
}

// WriteReceipt seals dir, a plugin's folder that was just built: the executable is run once with `describe`, must agree with
// plugin.yaml, and the digests of all files are written.
func WriteReceipt(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return contract.Errorf(contract.NotFound, dir, "%w", err)
	}
	m, _, err := readManifest(dir)
	if err != nil {
		return err
	}
	if filepath.Base(dir) != m.Name {
		return contract.Errorf(contract.PluginMismatch, dir, "the folder of plugin %s must have its name", m.Name)
	}
	return Seal(dir)
}

func readManifest(dir string) (*family.Manifest, []byte, error) {
	data, err := readSmall(filepath.Join(dir, manifestFile))
	if err != nil {
		return nil, nil, err
	}
	m, err := family.ParseManifest(data)
	if err != nil {
		return nil, nil, contract.Errorf(contract.PluginMismatch, dir, "%w", err)
	}
	return m, data, nil
}

// ManifestOf reads the plugin.yaml of a plugin's folder.
func ManifestOf(dir string) (*family.Manifest, error) {
	m, _, err := readManifest(dir)
	return m, err
}

// Seal is WriteReceipt for a folder of any name.
func Seal(dir string) error {
	m, data, err := readManifest(dir)
	if err != nil {
		return err
	}
	in := Installed{Name: m.Name, Dir: dir, Exe: filepath.Join(dir, exeName(m.Name)), Manifest: m}
	d, err := askDescribe(in.Exe)
	if err != nil {
		return err
	}
	if err := in.CheckDescribe(d); err != nil {
		return err
	}
	sum, size, err := hashFile(in.Exe)
	if err != nil {
		return err
	}
	r := receipt{Name: m.Name, Version: m.Version, ExeSHA256: sum, ManifestSHA256: digest(data), Size: size}
	if r.Files, err = others(dir, filepath.Base(in.Exe)); err != nil {
		return err
	}
	return writeReceipt(dir, r)
}

// others are the files of a plugin's folder beside its executable, manifest and receipt.
func others(dir, exe string) (out []pack.File, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if rel == exe || rel == manifestFile || NotPacked(rel) {
			return nil
		}
		sum, size, err := hashFile(path)
		out = append(out, pack.File{Path: rel, Size: size, SHA256: sum})
		return err
	})
	if err != nil {
		return nil, contract.Errorf(contract.PluginMismatch, dir, "%w", err)
	}
	return out, nil
}

// NotPacked names what of a plugin's folder belongs to this machine alone: its receipt, and hidden files.
func NotPacked(path string) bool {
	return path == receiptFile || strings.HasPrefix(path, ".") || strings.Contains(path, "/.")
}

func writeReceipt(dir string, r receipt) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return contract.Errorf(contract.Internal, dir, "%w", err)
	}
	path := filepath.Join(dir, receiptFile)
	if err := replace(path, append(text, '\n')); err != nil {
		return contract.Errorf(contract.Internal, path, "%w", err)
	}
	return nil
}

// replace writes a file whole or not at all.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// askDescribe runs `EXE describe --json` without any environment: it must need neither host nor runtime.
func askDescribe(exe string) (*cladev1.DescribeResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), describeTime)
	defer cancel()
	var out, errs bounded
	c := exec.CommandContext(ctx, exe, "describe", "--json")
	c.Env = []string{}
	c.Stdout, c.Stderr = &out, &errs
	c.WaitDelay = time.Second
	if err := c.Run(); err != nil {
		said := strings.ToValidUTF8(errs.String(), "?")
		return nil, contract.Errorf(contract.PluginMismatch, exe, "describe: %w: %s", err, said[:min(len(said), 300)])
	}
	d := &cladev1.DescribeResponse{}
	if err := protojson.Unmarshal(out.Bytes(), d); err != nil {
		return nil, contract.Errorf(contract.PluginMismatch, exe, "describe: %w", err)
	}
	return d, nil
}

// bounded is a buffer that drops what exceeds describeBytes; a cut answer does not parse.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	_, _ = b.Buffer.Write(p[:min(len(p), describeBytes-b.Len())])
	return len(p), nil
}
