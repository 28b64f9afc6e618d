// Command clade-leaf is the plugin of the leaf family. Its graph is the package beside this file, its kernel's source in lib/.
package main

import (
	_ "embed"

	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kernels"

	"example.org/leaf/graph"
)

//go:embed plugin.yaml
var manifest []byte

// librarySHA256 is the digest of lib/libleaf.so, set by the Makefile.
var librarySHA256 string

func main() {
	own := graph.Library(librarySHA256)
	engine.Main(manifest, engine.Family{
		Tables:  []engine.Table{{Graph: "example.org/leaf", Entries: []engine.Graph{graph.Graph()}}},
		Kernels: kernels.CPU(), Own: &own,
	})
}
