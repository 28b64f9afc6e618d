package mlx

import "golang.org/x/sys/unix"

// availableMemory is the machine's memory: macOS compresses and swaps before it refuses.
func availableMemory() (int64, error) {
	n, err := unix.SysctlUint64("hw.memsize")
	return int64(n), err
}
