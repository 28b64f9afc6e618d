// Command clade-leaf is the plugin of the leaf family. Its graph is the package beside this file, its kernel's source in lib/.
package main

import (
	_ "embed"
	"fmt"
	"os"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/plugin"

	"example.org/leaf/graph"
)

//go:embed plugin.yaml
var manifest []byte

// librarySHA256 is the digest of lib/libleaf.so, set by the Makefile.
var librarySHA256 string

func main() {
	m, err := family.ParseManifest(manifest)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(contract.PluginMismatch.ExitCode())
	}
	own := graph.Library(librarySHA256)
	f := engine.Family{
		Name: m.Name, Version: m.Version, Manifest: m, Kernels: kernels.CPU(), Own: &own,
		Tables: []engine.Table{{Graph: "example.org/leaf", Entries: []engine.Graph{graph.Graph()}}},
	}
	backend := engine.NewBackend(f)
	plugin.Main(plugin.Family{
		Manifest: manifest, Tables: f.GraphTables(), Options: engine.Options(), Backend: backend, Kernels: backend.Kernels,
	})
}
