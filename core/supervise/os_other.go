//go:build !linux && !darwin

package supervise

import (
	"os"
	"os/exec"
	"runtime"

	"github.com/clademl/clade/sdk/contract"
)

// supported refuses: a plugin needs process groups and private Unix sockets as Linux and macOS have them.
func supported() error {
	return contract.Errorf(contract.UnsupportedOption, runtime.GOOS, "plugins run on Linux and macOS").
		WithNext("use one of them, or WSL2 on Windows")
}

func configure(*exec.Cmd) {}

func preferAsVictim(int) {}

func waitExit(int) {}

func killGroup(int) {}

func ending(*os.ProcessState) (string, bool) { return "ended", false }

func privateDir() (string, func(), error) { return "", nil, supported() }
