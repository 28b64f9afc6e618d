//go:build !linux && !darwin

package loader

// machineMemory is not known: plugins do not run here.
func machineMemory() (total, available uint64) { return 0, 0 }
