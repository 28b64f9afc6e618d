//go:build !unix

package check

import (
	"os"
	"os/exec"
)

const signals = false

func ownGroup(*exec.Cmd)                       {}
func killGroup(p *os.Process)                  { _ = p.Kill() }
func interrupt(*os.Process) error              { return nil }
func terminate(p *os.Process) error            { return p.Kill() }
func reading(int) (uint64, bool)               { return 0, false }
func resident(int) (now, most uint64, ok bool) { return 0, 0, false }
