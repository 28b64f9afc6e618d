//go:build !linux && !darwin

package machine

// Memory is not known: plugins do not run here.
func Memory() (total, available uint64) { return 0, 0 }

// OOMKills is not counted here.
func OOMKills() (count uint64, ok bool) { return 0, false }

// Resident is not known here.
func Resident(int) uint64 { return 0 }
