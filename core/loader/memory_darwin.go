package loader

import "golang.org/x/sys/unix"

// MachineMemory is the memory there is and the three quarters of it that models may take: macOS does not say what it could
// free, and its GPU may wire about as much.
func MachineMemory() (total, available uint64) {
	total, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0, 0
	}
	return total, total / 4 * 3
}
