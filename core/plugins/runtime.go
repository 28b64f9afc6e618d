package plugins

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/clademl/clade/core/plugins/pack"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/family"
)

const runtimeFile = "runtime.json"

// Runtime is a folder of native libraries, as its runtime.json describes it.
type Runtime struct {
	Dir       string            `json:"-"`
	Variant   string            `json:"variant"`
	MLX       string            `json:"mlx"`
	MLXC      string            `json:"mlxc"`
	OS        string            `json:"os"`
	Arch      string            `json:"arch"`
	Libraries map[string]string `json:"libraries"`
	Files     []pack.File       `json:"files"`
}

// ReadRuntime reads a runtime's description; its files are not looked at.
func ReadRuntime(dir string) (*Runtime, error) {
	path := filepath.Join(dir, runtimeFile)
	for _, p := range []string{dir, path} {
		if err := guarded(p); err != nil {
			return nil, err
		}
	}
	data, err := readSmall(path)
	if err != nil {
		return nil, err
	}
	r := &Runtime{Dir: dir}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, contract.Errorf(contract.PluginUntrusted, path, "%w", err)
	}
	licences := false
	for _, f := range r.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) || f.Size < 0 || !isSHA256(f.SHA256) {
			return nil, contract.Errorf(contract.PluginUntrusted, path, "the file %q is malformed", f.Path)
		}
		licences = licences || strings.HasPrefix(f.Path, "licences/")
	}
	if r.Variant == "" || r.MLX == "" || r.MLXC == "" || len(r.Libraries) == 0 || !licences {
		return nil, contract.Errorf(contract.PluginMismatch, path, "names no variant, versions, libraries or licences")
	}
	return r, nil
}

// Archive is the digest that the store keeps an installed runtime under.
func (r *Runtime) Archive() string { return strings.TrimPrefix(filepath.Base(r.Dir), "sha256-") }

// Fits says whether a plugin works with the runtime.
func (r *Runtime) Fits(m *family.Manifest) error {
	works := func(named []string, have string) bool { return len(named) == 0 || slices.Contains(named, have) }
	if works(m.Runtime.MLX, r.MLX) && works(m.Runtime.MLXC, r.MLXC) {
		return nil
	}
	return contract.Errorf(contract.PluginMismatch, m.Name+" "+m.Version, "works with MLX %s and mlx-c %s, the runtime %s is MLX %s with mlx-c %s",
		strings.Join(m.Runtime.MLX, ", "), strings.Join(m.Runtime.MLXC, ", "), r.Dir, r.MLX, r.MLXC).WithNext("install the plugin again")
}
