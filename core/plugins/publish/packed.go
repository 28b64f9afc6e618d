package publish

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/clademl/clade/core/plugins"
	"github.com/clademl/clade/core/plugins/index"
	"github.com/clademl/clade/core/plugins/pack"
	"github.com/clademl/clade/core/plugins/store"
	"github.com/clademl/clade/sdk/contract"
)

const (
	suffix     = ".tar.gz"
	packedFile = ".packed.json"
)

// packedFiles remembers, by the digest of a folder's content, the archive that was made of it.
type packedFiles map[string]index.Archive

func readPacked(dir string) packedFiles {
	p := packedFiles{}
	data, err := os.ReadFile(filepath.Join(dir, packedFile))
	if err != nil || json.Unmarshal(data, &p) != nil {
		return packedFiles{} // then all is packed again
	}
	return p
}

func (p packedFiles) write(dir string) error {
	data, err := json.Marshal(p)
	if err == nil {
		err = store.Replace(filepath.Join(dir, packedFile), data)
	}
	if err != nil {
		return contract.Errorf(contract.Unavailable, dir, "%w", err)
	}
	return nil
}

// pack makes the archive of a folder, or finds it made.
func (o *Options) pack(packed packedFiles, folder string, a index.Archive, stem string) (index.Archive, error) {
	key, err := contentOf(folder)
	if err != nil {
		return a, contract.Errorf(contract.NotFound, folder, "%w", err)
	}
	key += " " + a.Platform() + " " + stem
	if have, ok := packed[key]; ok {
		if info, err := os.Stat(filepath.Join(o.Dir, filepath.FromSlash(have.URLs[0]))); err == nil && info.Size() == have.Size {
			return have, nil
		}
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, archives), 0o755); err != nil {
		return a, contract.Errorf(contract.Unavailable, o.Dir, "%w", err)
	}
	tmp, err := os.CreateTemp(filepath.Join(o.Dir, archives), ".pack-")
	if err != nil {
		return a, contract.Errorf(contract.Unavailable, o.Dir, "%w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone after the rename
	made, err := pack.Pack(tmp, folder, plugins.NotPacked)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return a, contract.Errorf(contract.InvalidArgument, folder, "%w", err)
	}
	name := stem + "-" + a.OS + "-" + a.Arch
	if a.Variant != "" {
		name += "-" + a.Variant
	}
	name = archives + "/" + name + "-" + made.SHA256[:12] + suffix
	if err := os.Rename(tmp.Name(), filepath.Join(o.Dir, filepath.FromSlash(name))); err != nil {
		return a, contract.Errorf(contract.Unavailable, o.Dir, "%w", err)
	}
	a.URLs, a.Size, a.Unpacked, a.SHA256 = []string{name}, made.Size, made.Unpacked, made.SHA256
	packed[key] = a
	o.Told("packed %s: %d bytes, sha256 %s", name, a.Size, a.SHA256)
	return a, nil
}

// contentOf digests what an archive of the folder would hold.
func contentOf(folder string) (string, error) {
	all := sha256.New()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(folder, path)
		if err != nil || plugins.NotPacked(filepath.ToSlash(rel)) {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // only read
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil {
			return err
		}
		_, err = fmt.Fprintf(all, "%q %t %x\n", filepath.ToSlash(rel), info.Mode().Perm()&0o111 != 0, sum.Sum(nil))
		return err
	})
	return hex.EncodeToString(all.Sum(nil)), err
}
