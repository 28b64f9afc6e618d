package plugin

import (
	"io"
	"os"

	"github.com/clademl/clade/sdk/contract"
)

// protectStdout refuses: plugins run on Linux and macOS.
func protectStdout() (*stdio, error) {
	return nil, contract.Errorf(contract.UnsupportedOption, "windows", "plugins run on Linux and macOS")
}

func dieAtEOF(liveness io.Reader) {
	_, _ = io.Copy(io.Discard, liveness)
	os.Exit(1)
}
