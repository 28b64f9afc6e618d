package kernels

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/mlx"
)

// Own is a library that a plugin brings in lib/ beside its executable, built against the runtime that it names, with kernels of
// its own. The plugin's binary holds the library's digest: what is loaded is what it was built with.
type Own struct {
	// File is the library's name in lib/. SHA256 is its digest in hex, set when the binary is linked (-ldflags -X).
	File, SHA256 string
	Kernels      []OwnKernel
}

// OwnKernel is a kernel, the operation of the library that is it, and the graph that stands in.
type OwnKernel struct {
	Kernel
	Operation string
	// Test compares the operation with the fallback when the runtime is loaded.
	Test func(s *mlx.Scope, op *mlx.Operation) error
}

// Registry lists the kernels before any runtime is loaded.
func (o Own) Registry() Registry {
	var list []Kernel
	for _, k := range o.Kernels {
		list = append(list, k.Kernel)
	}
	return NewRegistry(list...)
}

// OwnLibrary is a loaded Own.
type OwnLibrary struct {
	operations map[string]*mlx.Operation
	results    map[string]error
}

// Operation is a kernel's; nil where the library lacks it.
func (l *OwnLibrary) Operation(kernel string) *mlx.Operation { return l.operations[kernel] }

// Has reports whether the library has the kernel.
func (l *OwnLibrary) Has(kernel string) bool { _, ok := l.results[kernel]; return ok }

// SelfTest is the result of the comparison at load.
func (l *OwnLibrary) SelfTest(kernel string) error { return l.results[kernel] }

// Load verifies and opens the library and tests its kernels. An error is the reason that the fallbacks run.
func (o Own) Load(r *mlx.Runtime) (_ *OwnLibrary, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, contract.Errorf(contract.Internal, o.File, "%w", err)
	}
	path := filepath.Join(filepath.Dir(exe), "lib", o.File)
	if err := o.verify(path); err != nil {
		return nil, err
	}
	e, err := r.OpenExtension(path)
	if err != nil {
		return nil, err
	}
	w, err := r.NewWorker(mlx.CPU)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	l := &OwnLibrary{operations: map[string]*mlx.Operation{}, results: map[string]error{}}
	for _, k := range o.Kernels {
		op, err := e.Operation(k.Operation)
		if err == nil {
			l.operations[k.Name] = op
			err = w.Do(context.Background(), func(s *mlx.Scope) error { return errors.Join(k.Test(s, op), s.Err()) })
		}
		l.results[k.Name] = err
	}
	return l, nil
}

// verify holds the file to the digest in the binary.
func (o Own) verify(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return contract.Errorf(contract.NotFound, path, "%w", err)
	}
	switch sum := sha256.Sum256(data); o.SHA256 {
	case "":
		return contract.Errorf(contract.PluginUntrusted, path, "the plugin was built without its digest")
	case hex.EncodeToString(sum[:]):
		return nil
	}
	return contract.Errorf(contract.PluginUntrusted, path, "is not the library that this plugin was built with")
}
