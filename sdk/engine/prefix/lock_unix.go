//go:build unix

package prefix

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock waits until no other process writes to the folder. Closing f, or the process's end, gives the lock back.
func lock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}
