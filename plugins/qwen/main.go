// Command clade-qwen is the plugin of Qwen 3 and 3.5. Its graphs are packages beside this file.
package main

import (
	_ "embed"
	"fmt"
	"os"

	"github.com/clademl/clade/plugins/qwen/qwen3"
	"github.com/clademl/clade/plugins/qwen/qwen35"
	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/family"
	"github.com/clademl/clade/sdk/kernels"
	"github.com/clademl/clade/sdk/plugin"
)

//go:embed plugin.yaml
var manifest []byte

func main() {
	f, err := qwen()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(contract.KindOf(err).ExitCode())
	}
	plugin.Main(f)
}

// qwen is the plugin as a value.
func qwen() (plugin.Family, error) {
	m, err := family.ParseManifest(manifest)
	if err != nil {
		return plugin.Family{}, err
	}
	f := engine.Family{
		Name: m.Name, Version: m.Version, Manifest: m,
		Tables: []engine.Table{
			{Graph: "qwen3.5", Entries: []engine.Graph{qwen35.Graph()}},
			{Graph: "qwen3.5-moe", Entries: []engine.Graph{qwen35.MoEGraph()}},
			{Graph: "qwen3", Entries: []engine.Graph{qwen3.ChainedGraph(), qwen3.Graph()}},
			{Graph: "qwen3-moe", Entries: []engine.Graph{qwen3.MoEGraph()}},
		},
		Kernels: kernels.CPU(),
	}
	backend := engine.NewBackend(f)
	return plugin.Family{
		Manifest: manifest, Tables: f.GraphTables(), Options: engine.Options(), Backend: backend, Kernels: backend.Kernels,
	}, nil
}
