// Command clade-echo is the echo family as a plugin. `go build -ldflags "-X main.version=0.2.0"` makes it another version.
package main

import (
	"github.com/clademl/clade/sdk/plugin"
	"github.com/clademl/clade/sdk/plugintest/echo"
)

var version = echo.Version

func main() { plugin.Main(echo.Family(version)) }
