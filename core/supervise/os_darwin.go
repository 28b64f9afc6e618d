package supervise

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// configure gives the child a group of its own. macOS has no parent-death signal; the liveness pipe stands alone.
func configure(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// preferAsVictim has no means here.
func preferAsVictim(int) {}

// waitExit returns when the child has ended, without reaping it: until it is reaped its pid, and so its group's id, cannot be
// given to a stranger. When kqueue fails, the reaping Wait that follows does the waiting.
func waitExit(pid int) {
	kq, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(kq) }()
	change := unix.Kevent_t{
		Ident: uint64(pid), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT,
	}
	events := make([]unix.Kevent_t, 1)
	for {
		_, err := unix.Kevent(kq, []unix.Kevent_t{change}, events, nil)
		if !errors.Is(err, unix.EINTR) { // ESRCH: it has ended already
			return
		}
	}
}
