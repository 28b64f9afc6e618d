//go:build linux || darwin

package hub

import "golang.org/x/sys/unix"

// freeBytes is what an ordinary user may still write on dir's volume.
func freeBytes(dir string) (uint64, bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return s.Bavail * uint64(s.Bsize), true
}
