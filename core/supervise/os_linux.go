package supervise

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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

// victimScore is what a plugin is ahead of the host in the kernel's choice when memory runs out: a request is lost then, and not
// the server.
const victimScore = 300

// preferAsVictim raises the process's oom_score_adj above the host's, never lowers it. Where it cannot be written the kernel
// chooses by size alone, and a plugin is the larger one.
func preferAsVictim(pid int) {
	path := filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj")
	data, err := os.ReadFile(path)
	if err != nil {
		return
	}
	if now, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
		_ = os.WriteFile(path, []byte(strconv.Itoa(min(now+victimScore, 1000))), 0o600)
	}
}
