//go:build !linux

package engine

// residentBytes is 0: this system tells it only through native calls.
func residentBytes() uint64 { return 0 }
