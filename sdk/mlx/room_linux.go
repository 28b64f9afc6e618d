package mlx

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// availableMemory is what the kernel says can be had without swapping, plus free swap.
func availableMemory() (int64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	return parseMeminfo(data)
}

func parseMeminfo(data []byte) (int64, error) {
	var total int64
	found := false
	for line := range bytes.Lines(data) {
		f := bytes.Fields(line)
		if len(f) < 2 {
			continue
		}
		name := string(f[0])
		if name != "MemAvailable:" && name != "SwapFree:" {
			continue
		}
		kib, err := strconv.ParseInt(string(f[1]), 10, 64)
		if err != nil || kib < 0 || kib > 1<<50 {
			return 0, fmt.Errorf("/proc/meminfo: %s %q is no size", name, f[1])
		}
		found = found || name == "MemAvailable:"
		total += kib << 10
	}
	if !found {
		return 0, fmt.Errorf("/proc/meminfo: no MemAvailable")
	}
	return total, nil
}
