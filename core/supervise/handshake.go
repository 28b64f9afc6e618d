package supervise

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

// coreProtocol is go-plugin's own handshake version.
const coreProtocol = "1"

// checkHandshake reads the one line that a plugin prints: core|version|network|address|protocol|certificate. dir is the
// private directory in which the socket must lie.
func checkHandshake(name, line, dir string) error {
	part := strings.Split(strings.TrimSpace(line), "|")
	if len(part) < 5 || part[0] == "" || strings.Trim(part[0], "0123456789") != "" {
		return contract.Errorf(contract.PluginCrashed, name, "printed \"%s\" where the handshake was due",
			clip(printable([]byte(line))))
	}
	mismatch := func(format string, args ...any) error {
		return contract.Errorf(contract.PluginMismatch, name, format, args...).WithNext("install a version for this host")
	}
	version, err := strconv.Atoi(part[1])
	switch {
	case part[0] != coreProtocol:
		return mismatch("speaks plugin protocol %s, this host speaks %s", part[0], coreProtocol)
	case err != nil || version != contract.Major:
		return mismatch("speaks contract version %s, this host speaks %d", clip(part[1]), contract.Major)
	case part[4] != "grpc":
		return mismatch("speaks %q, not grpc", clip(part[4]))
	case part[2] != "unix" || filepath.Dir(part[3]) != dir:
		return mismatch("listens on %s %s, not in its private directory", clip(part[2]), clip(part[3]))
	case len(part) < 6 || len(part[5]) < 50:
		return mismatch("offers no certificate for mutual TLS")
	}
	return nil
}
