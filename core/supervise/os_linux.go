package supervise

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// configure gives the child a group of its own, and a SIGKILL from the kernel when the thread that started it ends: the second
// line behind the liveness pipe, for a plugin that is too stuck to read it. It reaches the plugin alone: what a plugin started
// itself may outlive a killed host here, which is why families start nothing.
func configure(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// waitExit returns when the child has ended, without reaping it: until it is reaped its pid, and so its group's id, cannot be
// given to a stranger.
func waitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
