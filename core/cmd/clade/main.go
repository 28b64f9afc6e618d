// Command clade runs language and speech models on a person's own machine. It wires the streams, the signals and the
// build's version to core/cli, and nothing else.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/clademl/clade/core/cli"
)

// version is the build's, set by the linker.
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once: the first one's handler is gone.
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Main(ctx, version, os.Args[1:], cli.Stdio()))
}
