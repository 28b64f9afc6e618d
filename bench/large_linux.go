package main

import (
	"syscall"
	"unsafe"
)

// largeWords is n words of memory that asks for large pages, as the kernels' weights do, and what gives it back.
func largeWords(n int) ([]uint64, func()) {
	data, err := syscall.Mmap(-1, 0, 8*n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return make([]uint64, n), func() {}
	}
	_ = syscall.Madvise(data, syscall.MADV_HUGEPAGE) // a system without them gives small ones
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(data))), n), func() { _ = syscall.Munmap(data) }
}
