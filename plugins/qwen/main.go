// Command clade-qwen is the plugin of Qwen 3 and 3.5. Its graphs are packages beside this file.
package main

import (
	_ "embed"

	"github.com/clademl/clade/plugins/qwen/qwen3"
	"github.com/clademl/clade/plugins/qwen/qwen35"
	"github.com/clademl/clade/sdk/engine"
	"github.com/clademl/clade/sdk/kernels"
)

//go:embed plugin.yaml
var manifest []byte

func main() { engine.Main(manifest, qwen()) }

func qwen() engine.Family {
	return engine.Family{
		Tables: []engine.Table{
			{Graph: "qwen3.5", Entries: []engine.Graph{qwen35.Graph()}},
			{Graph: "qwen3.5-moe", Entries: []engine.Graph{qwen35.MoEGraph()}},
			{Graph: "qwen3", Entries: []engine.Graph{qwen3.DecoderGraph(), qwen3.Graph()}},
			{Graph: "qwen3-moe", Entries: []engine.Graph{qwen3.MoEDecoderGraph(), qwen3.MoEGraph()}},
		},
		Kernels: kernels.CPU(),
	}
}
