package mlx

// #cgo linux LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/clademl/clade/sdk/contract"
)

// The versions that the shim was generated for and tested with.
const (
	Version  = "0.32.2" // of MLX
	CVersion = "0.6.0"  // of mlx-c
)

// manifestFile describes a runtime directory.
const manifestFile = "runtime.json"

// Manifest is what runtime.json says about a runtime directory.
type Manifest struct {
	Variant   string            `json:"variant"`
	MLX       string            `json:"mlx"`
	MLXC      string            `json:"mlxc"`
	OS        string            `json:"os"`
	Arch      string            `json:"arch"`
	Libraries map[string]string `json:"libraries"` // name -> path within the directory
	Files     []struct {
		Path string `json:"path"`
		Size int64  `json:"size"`
	} `json:"files"`
}

// checkSize refuses a library that is shorter than it was installed: the loader would map it and die of SIGBUS.
func (m *Manifest) checkSize(dir, library string) error {
	for _, f := range m.Files {
		if f.Path != library {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, f.Path))
		if err == nil && info.Size() < f.Size {
			return contract.Errorf(contract.ArtifactCorrupt, filepath.Join(dir, f.Path), "has %d bytes, runtime.json says %d", info.Size(), f.Size).
				WithNext("run make setup, or install the runtime again")
		}
	}
	return nil // one that is not there is told by the loader, with what was tried
}

// Runtime is MLX, loaded into this process.
type Runtime struct {
	dir      string
	manifest Manifest
	devices  []Device
	symbols  []Symbol
}

// Info says what was loaded.
type Info struct {
	Dir      string
	Variant  string // cpu, cuda13, metal
	MLX      string // version that the library itself reports
	MLXC     string
	Manifest Manifest
	Devices  []Device
}

var opened struct {
	sync.Mutex
	runtime *Runtime
}

// Open loads the runtime in dir: libmlx, then libmlxc, by absolute path. It checks runtime.json, the version that the
// library reports and every function of the table. A process has one runtime: a second Open of the same directory returns
// it, of another one fails.
func Open(dir string) (*Runtime, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, contract.Errorf(contract.NotFound, dir, "runtime directory: %w", err)
	}
	opened.Lock()
	defer opened.Unlock()
	if r := opened.runtime; r != nil {
		if r.dir != abs {
			return nil, contract.Errorf(contract.PluginMismatch, abs, "this process has already loaded the runtime %s", r.dir)
		}
		return r, nil
	}
	m, err := readManifest(abs)
	if err != nil {
		return nil, err
	}
	r := &Runtime{dir: abs, manifest: *m}
	// A message lives on the thread of the call.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	boundMalloc()
	if err := r.load(); err != nil {
		return nil, err
	}
	opened.runtime = r
	return r, nil
}

func readManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, manifestFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, contract.Errorf(contract.NotFound, path, "no runtime here: %w", err).WithNext("run make setup, or install a runtime")
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, contract.Errorf(contract.ArtifactCorrupt, path, "not a runtime manifest: %w", err)
	}
	switch {
	case m.OS != runtime.GOOS || m.Arch != runtime.GOARCH:
		return nil, contract.Errorf(contract.PluginMismatch, path, "a runtime for %s/%s on %s/%s", m.OS, m.Arch, runtime.GOOS, runtime.GOARCH)
	case m.MLX != Version || m.MLXC != CVersion:
		return nil, contract.Errorf(contract.PluginMismatch, path, "MLX %s with mlx-c %s, but this plugin was built for MLX %s with mlx-c %s", m.MLX, m.MLXC, Version, CVersion)
	}
	for _, lib := range []string{"libmlx", "libmlxc"} {
		if !filepath.IsLocal(m.Libraries[lib]) {
			return nil, contract.Errorf(contract.ArtifactCorrupt, path, "libraries.%s is %q, not a path within the runtime", lib, m.Libraries[lib])
		}
		if err := m.checkSize(dir, m.Libraries[lib]); err != nil {
			return nil, err
		}
	}
	return &m, nil
}

// Library is the absolute path of a library that runtime.json names, such as "libcladekernels".
func (r *Runtime) Library(name string) (string, bool) {
	p, ok := r.manifest.Libraries[name]
	if !ok || !filepath.IsLocal(p) {
		return "", false
	}
	return filepath.Join(r.dir, p), true
}

// tf32 is MLX's variable for products of float32 arrays in 10 bits of mantissa, which it makes on CUDA unless it is 0: three digits
// where a model was asked for in float32. It is read when the first product is made.
const tf32 = "MLX_ENABLE_TF32"

func (r *Runtime) load() error {
	if err := os.Setenv(tf32, "0"); err != nil {
		return contract.Errorf(contract.Internal, r.dir, "%s: %w", tf32, err)
	}
	var tried []string
	var lib unsafe.Pointer
	for _, name := range []string{"libmlx", "libmlxc"} {
		path, _ := r.Library(name)
		tried = append(tried, path)
		cpath := C.CString(path)
		lib = C.cx_dlopen(cpath)
		C.free(unsafe.Pointer(cpath))
		if lib == nil {
			return contract.Errorf(contract.NotFound, r.dir, "cannot load %s: %s (tried %s)", name, takeMessage(), strings.Join(tried, ", ")).WithNext("run make setup, or install the runtime again")
		}
	}
	var found [C.CX_SYMBOLS]C.bool
	missing := C.cx_resolve(lib, &found[0])
	r.symbols = make([]Symbol, len(found))
	for i := range found {
		c := &C.cx_symbols[i]
		r.symbols[i] = Symbol{Name: C.GoString(c.name), Optional: bool(c.optional), Found: bool(found[i])}
	}
	if missing != 0 {
		return contract.Errorf(contract.PluginMismatch, tried[1], "lacks %s of mlx-c %s", r.missingText(), CVersion)
	}
	C.cx_install_error_handler()
	got, err := reportedVersion()
	if err != nil {
		return contract.Errorf(contract.PluginMismatch, tried[0], "%w", err)
	}
	if got != Version {
		return contract.Errorf(contract.PluginMismatch, tried[0], "is MLX %s, but runtime.json and this plugin say %s", got, Version)
	}
	if r.devices, err = listDevices(); err != nil {
		return contract.Errorf(contract.Internal, r.dir, "%w", err)
	}
	if !r.HasGPU() && C.cx_mlx_disable_compile() != 0 {
		return contract.Errorf(contract.Internal, r.dir, "disable_compile: %s", takeMessage())
	}
	return nil
}

// missingText names the required functions that the library lacks, a few of them when there are many.
func (r *Runtime) missingText() string {
	const show = 5
	var names []string
	for _, s := range r.symbols {
		if !s.Found && !s.Optional {
			names = append(names, s.Name)
		}
	}
	if len(names) > show {
		return fmt.Sprintf("%s and %d more functions", strings.Join(names[:show], ", "), len(names)-show)
	}
	return strings.Join(names, ", ")
}

// Symbol is a function of mlx-c that the shim was generated for.
type Symbol struct {
	Name     string
	Optional bool // a build of mlx-c may leave it out
	Found    bool // the loaded library has it
}

// Symbols lists the functions of the table and whether the library has them.
func (r *Runtime) Symbols() []Symbol { return slices.Clone(r.symbols) }

// Has tells whether the loaded mlx-c has a function; ask for optional ones before use.
func (r *Runtime) Has(name string) bool {
	for _, s := range r.symbols {
		if s.Name == name {
			return s.Found
		}
	}
	return false
}

func reportedVersion() (string, error) {
	str := C.cx_mlx_string_new()
	if C.cx_mlx_version(&str) != 0 {
		return "", &OpError{Op: "version", Message: takeMessage()}
	}
	v := C.GoString(C.cx_mlx_string_data(str))
	if C.cx_mlx_string_free(str) != 0 {
		return "", &OpError{Op: "version", Message: takeMessage()}
	}
	return v, nil
}

// Info says what was loaded.
func (r *Runtime) Info() Info {
	return Info{Dir: r.dir, Variant: r.manifest.Variant, MLX: Version, MLXC: CVersion, Manifest: r.manifest, Devices: slices.Clone(r.devices)}
}

// HasGPU tells whether the runtime found a GPU.
func (r *Runtime) HasGPU() bool {
	for _, d := range r.devices {
		if d.Kind == GPU {
			return true
		}
	}
	return false
}
