//go:build unix

package check

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// signals says that signals can be sent to a process here.
const signals = true

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends the group that the process leads. A group without members is none.
func killGroup(p *os.Process) { _ = unix.Kill(-p.Pid, unix.SIGKILL) }

func interrupt(p *os.Process) error { return p.Signal(unix.SIGINT) }
func terminate(p *os.Process) error { return p.Signal(unix.SIGTERM) }

// reading is how many bytes the process has read so far; false where the system does not say.
func reading(pid int) (uint64, bool) { return procNumber(fmt.Sprintf("/proc/%d/io", pid), "rchar:") }

// resident is its memory in bytes, now and at most; false where the system does not say.
func resident(pid int) (now, most uint64, ok bool) {
	status := fmt.Sprintf("/proc/%d/status", pid)
	now, a := procNumber(status, "VmRSS:")
	most, b := procNumber(status, "VmHWM:")
	return now << 10, most << 10, a && b
}

func procNumber(path, key string) (uint64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		var v uint64
		if rest, ok := strings.CutPrefix(line, key); ok {
			_, err := fmt.Sscan(rest, &v)
			return v, err == nil
		}
	}
	return 0, false
}
