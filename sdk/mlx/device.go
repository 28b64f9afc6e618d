package mlx

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// Device is something MLX computes on.
type Device struct {
	Kind   DeviceKind
	Index  int
	Name   string // the exact name compositions use: cpu-x86_64-avx512, cuda-sm90, metal-applegpu_g16s
	Title  string // the maker's name, when MLX tells it
	Memory int64  // bytes, when MLX tells it
}

// cpuName is the CPU with the widest vector extension that kernels choose between.
func cpuName() string {
	switch runtime.GOARCH {
	case "amd64":
		x := cpu.X86
		switch {
		case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512CD && x.HasAVX512DQ && x.HasAVX512VL:
			return "cpu-x86_64-avx512"
		case x.HasAVX2 && x.HasFMA:
			return "cpu-x86_64-avx2"
		}
		return "cpu-x86_64"
	case "arm64":
		return "cpu-arm64-neon"
	}
	return "cpu-" + runtime.GOARCH
}

func listDevices() ([]Device, error) {
	var out []Device
	for _, kind := range []DeviceKind{CPU, GPU} {
		var n C.int
		if C.cx_mlx_device_count(&n, C.mlx_device_type(kind)) != 0 {
			return nil, &OpError{Op: "device_count", Message: takeMessage()}
		}
		for i := range int(n) {
			d, err := readDevice(kind, i)
			if err != nil {
				return nil, err
			}
			out = append(out, d)
		}
	}
	return out, nil
}

// withDevice lends fn a device handle.
func withDevice(kind DeviceKind, index int, fn func(C.mlx_device) error) error {
	dev := C.cx_mlx_device_new_type(C.mlx_device_type(kind), C.int(index))
	if dev.ctx == nil {
		return &OpError{Op: "device", Message: takeMessage()}
	}
	err := fn(dev)
	if C.cx_mlx_device_free(dev) != 0 {
		err = errors.Join(err, &OpError{Op: "device_free", Message: takeMessage()})
	}
	return err
}

func readDevice(kind DeviceKind, index int) (Device, error) {
	d := Device{Kind: kind, Index: index}
	err := withDevice(kind, index, func(dev C.mlx_device) error {
		info := C.cx_mlx_device_info_new()
		if C.cx_mlx_device_info_get(&info, dev) != 0 {
			return &OpError{Op: "device_info", Message: takeMessage()}
		}
		d.describe(info)
		if C.cx_mlx_device_info_free(info) != 0 {
			return &OpError{Op: "device_info_free", Message: takeMessage()}
		}
		return nil
	})
	return d, err
}

func (d *Device) describe(info C.mlx_device_info) {
	d.Title = infoString(info, "device_name")
	for _, key := range []string{"total_memory", "memory_size"} {
		if d.Memory = infoSize(info, key); d.Memory > 0 {
			break
		}
	}
	if d.Kind == CPU {
		d.Name = cpuName()
		return
	}
	d.Name = gpuName(infoString(info, "architecture"), infoSize(info, "compute_capability_major"), infoSize(info, "compute_capability_minor"))
}

// gpuName: CUDA tells a compute capability, Metal an architecture such as applegpu_g16s.
func gpuName(arch string, major, minor int64) string {
	if major > 0 {
		return fmt.Sprintf("cuda-sm%d%d", major, minor)
	}
	if sm, ok := strings.CutPrefix(arch, "sm_"); ok {
		return "cuda-sm" + sm
	}
	return "metal-" + arch
}

func infoString(info C.mlx_device_info, key string) string {
	ck := C.CString(key)
	defer C.free(unsafe.Pointer(ck))
	var v *C.char
	if C.cx_mlx_device_info_get_string(&v, info, ck) != 0 { // the key is optional: absence is an answer
		return ""
	}
	return C.GoString(v)
}

func infoSize(info C.mlx_device_info, key string) int64 {
	ck := C.CString(key)
	defer C.free(unsafe.Pointer(ck))
	var v C.size_t
	if C.cx_mlx_device_info_get_size(&v, info, ck) != 0 {
		return 0
	}
	return int64(v)
}
