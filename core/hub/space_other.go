//go:build !linux && !darwin

package hub

// freeBytes is not known here.
func freeBytes(string) (uint64, bool) { return 0, false }
