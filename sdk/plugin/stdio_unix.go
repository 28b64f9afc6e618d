//go:build unix

package plugin

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// protectStdout moves the handshake pipe to a private descriptor, held by os.Stdout until the line is printed, and makes
// descriptor 1 a copy of 2.
func protectStdout() (*stdio, error) {
	fd, err := unix.FcntlInt(os.Stdout.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	if err := dup2(2, 1); err != nil {
		return nil, err
	}
	s := &stdio{handshake: os.NewFile(uintptr(fd), "handshake"), out: os.Stdout, err: os.Stderr}
	os.Stdout = s.handshake
	return s, nil
}

// dieAtEOF ends the process, and its group when it leads one, as soon as the host's end of the liveness pipe is closed:
// the host is gone, so nobody can wait for a clean end.
func dieAtEOF(liveness io.Reader) {
	_, _ = io.Copy(io.Discard, liveness)
	if pid := unix.Getpid(); unix.Getpgrp() == pid {
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
	os.Exit(1)
}
