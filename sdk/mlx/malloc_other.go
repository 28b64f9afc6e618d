//go:build !linux

package mlx

// boundMalloc is for glibc.
func boundMalloc() {}
