//go:build !linux && !darwin

package loader

// MachineMemory is not known: plugins do not run here.
func MachineMemory() (total, available uint64) { return 0, 0 }
