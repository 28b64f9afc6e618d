//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// lock takes the file lock at path, calling waiting once if another process has it. The kernel gives it back when the
// process dies, however it dies.
func lock(ctx context.Context, path string, waiting func(holder string)) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for told := false; ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if !told {
			holder, _ := os.ReadFile(path)
			waiting(strings.TrimSpace(string(holder)))
			told = true
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("waiting for the lock %s: %w", path, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
	// The number is for the other side's message only.
	if err := f.Truncate(0); err == nil {
		fmt.Fprintln(f, os.Getpid())
	}
	return func() { f.Close() }, nil
}

// group puts a child into its own process group, so that stop reaches its children (cmake's compilers) too.
func group() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func stop(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
