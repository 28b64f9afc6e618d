// Command clade-universal of this folder is the plugin for a test of the host: it dies whenever a request holds poison.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/clademl/clade/plugins/universal/dense"
	"github.com/clademl/clade/sdk/artifact"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/kv"
	"github.com/clademl/clade/sdk/mlx"
	"github.com/clademl/clade/sdk/weights"
)

// poison is three ids that no other request of the test holds in a row: "~~~" in bytes.
var poison = []int32{'~', '~', '~'}

// poisoned dies, as of an illegal access, in the forward that computes the poison.
type poisoned struct{ engine.Model }

func (p poisoned) Forward(s *mlx.Scope, ids *mlx.Array, pass *kv.Pass) *mlx.Array {
	tokens, err := mlx.ToSlice[int32](s, ids)
	if err == nil {
		for i := range tokens {
			if i+len(poison) <= len(tokens) && slices.Equal(tokens[i:i+len(poison)], poison) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGSEGV)
				select {}
			}
		}
	}
	return p.Model.Forward(s, ids, pass)
}

func main() {
	exe, err := os.Executable()
	if err == nil {
		err = serve(filepath.Join(filepath.Dir(exe), "plugin.yaml"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(path string) error {
	manifest, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	graph := dense.Graph()
	read := graph.Read
	graph.Read = func(a *artifact.Artifact, parsed artifact.Config) (engine.Blueprint, error) {
		b, err := read(a, parsed)
		build := b.Build
		b.Build = func(s *mlx.Scope, w *weights.Tensors, dtype mlx.DType) engine.Model {
			return poisoned{build(s, w, dtype)}
		}
		return b, err
	}
	engine.Main(manifest, engine.Family{
		Tables:          []engine.Table{{Graph: "minicpm5", Entries: []engine.Graph{graph}}, {Graph: "universal-dense", Entries: []engine.Graph{graph}}},
		Implementations: map[string]engine.Graph{"universal-dense": graph},
		Kernels:         kernels.CPU(),
	})
	return nil
}
