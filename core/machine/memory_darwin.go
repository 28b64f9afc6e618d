package machine

import "golang.org/x/sys/unix"

// Memory is the memory there is and the three quarters of it that models may take: macOS does not say what it could
// free, and its GPU may wire about as much.
func Memory() (total, available uint64) {
	total, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0, 0
	}
	return total, total / 4 * 3
}

// OOMKills is not counted here.
func OOMKills() (count uint64, ok bool) { return 0, false }

// Resident is not known here.
func Resident(int) uint64 { return 0 }
