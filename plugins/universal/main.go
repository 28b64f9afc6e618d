// Command clade-universal is the plugin of ordinary dense decoders. Its graphs are packages beside this file.
package main

import (
	_ "embed"

	"github.com/clademl/clade/plugins/universal/dense"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kernels"
)

//go:embed plugin.yaml
var manifest []byte

func main() { engine.Main(manifest, universal()) }

// universal is the family as a value.
func universal() engine.Family {
	return engine.Family{
		Tables: []engine.Table{
			{Graph: "minicpm5", Entries: []engine.Graph{dense.Graph()}},
			{Graph: "universal-dense", Entries: []engine.Graph{dense.Graph()}},
		},
		Implementations: map[string]engine.Graph{"universal-dense": dense.Graph()},
		Kernels:         kernels.CPU(),
	}
}
