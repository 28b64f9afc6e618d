package mlx

// #include "shim.h"
import "C"

import "runtime"

// Memory is MLX's own count of the memory behind arrays, in bytes, for the whole process.
type Memory struct {
	Active int64 // held by arrays
	Peak   int64 // the most that Active was since the last ResetPeak
	Cache  int64 // freed by arrays, kept for reuse
}

// sizeCall runs a memory call that gives a size.
func sizeCall(op string, call func(*C.size_t) C.int) (int64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var n C.size_t
	if call(&n) != 0 {
		return 0, &OpError{Op: op, Message: takeMessage()}
	}
	return int64(n), nil
}

// Memory reads the counts. Like the calls below it may be made on any goroutine.
func (r *Runtime) Memory() (Memory, error) {
	var m Memory
	var err error
	if m.Active, err = sizeCall("get_active_memory", func(n *C.size_t) C.int { return C.cx_mlx_get_active_memory(n) }); err != nil {
		return m, err
	}
	if m.Peak, err = sizeCall("get_peak_memory", func(n *C.size_t) C.int { return C.cx_mlx_get_peak_memory(n) }); err != nil {
		return m, err
	}
	m.Cache, err = sizeCall("get_cache_memory", func(n *C.size_t) C.int { return C.cx_mlx_get_cache_memory(n) })
	return m, err
}

// ResetPeak starts a new peak.
func (r *Runtime) ResetPeak() error {
	_, err := sizeCall("reset_peak_memory", func(*C.size_t) C.int { return C.cx_mlx_reset_peak_memory() })
	return err
}

// ClearCache gives cached memory back to the system.
func (r *Runtime) ClearCache() error {
	_, err := sizeCall("clear_cache", func(*C.size_t) C.int { return C.cx_mlx_clear_cache() })
	return err
}

// SetCacheLimit bounds the cache and returns the limit before.
func (r *Runtime) SetCacheLimit(bytes int64) (before int64, err error) {
	return sizeCall("set_cache_limit", func(n *C.size_t) C.int { return C.cx_mlx_set_cache_limit(n, C.size_t(bytes)) })
}

// SetMemoryLimit sets what MLX tries to stay under and returns the limit before.
func (r *Runtime) SetMemoryLimit(bytes int64) (before int64, err error) {
	return sizeCall("set_memory_limit", func(n *C.size_t) C.int { return C.cx_mlx_set_memory_limit(n, C.size_t(bytes)) })
}

// SetWiredLimit sets how much memory stays resident on Metal and returns the limit before.
func (r *Runtime) SetWiredLimit(bytes int64) (before int64, err error) {
	return sizeCall("set_wired_limit", func(n *C.size_t) C.int { return C.cx_mlx_set_wired_limit(n, C.size_t(bytes)) })
}
