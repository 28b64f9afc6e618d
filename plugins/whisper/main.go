// Command clade-whisper is the plugin of the families in plugin.yaml. This version announces them: it describes itself, and
// refuses to plan or open a model by naming the version that can.
package main

import (
	_ "embed"

	"github.com/clademl/clade/sdk/plugin"
)

//go:embed plugin.yaml
var manifest []byte

func main() { plugin.Main(plugin.Family{Manifest: manifest}) }
