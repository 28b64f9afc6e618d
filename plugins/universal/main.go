// Command clade-universal is the plugin of ordinary dense decoders. Its graphs are packages beside this file.
package main

import (
	_ "embed"
	"fmt"
	"os"

	"github.com/clademl/clade/plugins/universal/dense"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/plugin"
)

//go:embed plugin.yaml
var manifest []byte

func main() {
	f, err := universal()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(contract.KindOf(err).ExitCode())
	}
	plugin.Main(f)
}

// universal is the plugin as a value.
func universal() (plugin.Family, error) {
	m, err := family.ParseManifest(manifest)
	if err != nil {
		return plugin.Family{}, err
	}
	f := engine.Family{
		Name: m.Name, Version: m.Version, Manifest: m,
		Tables: []engine.Table{
			{Graph: "minicpm5", Entries: []engine.Graph{dense.Graph()}},
			{Graph: "universal-dense", Entries: []engine.Graph{dense.Graph()}},
		},
		Implementations: map[string]engine.Graph{"universal-dense": dense.Graph()},
		Kernels:         kernels.CPU(),
	}
	backend := engine.NewBackend(f)
	return plugin.Family{
		Manifest: manifest, Tables: f.GraphTables(), Options: engine.Options(), Backend: backend, Kernels: backend.Kernels,
	}, nil
}
