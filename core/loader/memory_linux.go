package loader

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MachineMemory is the memory there is and what is available now, in bytes: the machine's, or less where a control group
// limits this process. Zero: not known.
func MachineMemory() (total, available uint64) {
	fields := keyValues("/proc/meminfo")
	total, available = fields["MemTotal:"]<<10, fields["MemAvailable:"]<<10
	limit, used := cgroupMemory()
	if limit == 0 || limit >= total {
		return total, available
	}
	return limit, min(available, limit-min(used, limit))
}

// cgroupMemory is the smallest limit of this process's group and its parents, and what is used there without file cache
// that can be dropped. Version 2 first, then version 1.
func cgroupMemory() (limit, used uint64) {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, 0
	}
	for line := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0":
			return smallest("/sys/fs/cgroup", parts[2], "memory.max", "memory.current", "inactive_file")
		case strings.Contains(","+parts[1]+",", ",memory,"):
			return smallest("/sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
		}
	}
	return 0, 0
}

func smallest(root, group, limitFile, usedFile, cacheKey string) (limit, used uint64) {
	for dir := filepath.Join(root, group); strings.HasPrefix(dir, root); dir = filepath.Dir(dir) {
		n := number(filepath.Join(dir, limitFile))
		if n == 0 || (limit != 0 && n >= limit) {
			continue
		}
		cache := keyValues(filepath.Join(dir, "memory.stat"))[cacheKey]
		limit, used = n, number(filepath.Join(dir, usedFile))
		used -= min(cache, used)
	}
	return limit, used
}

// number reads a file of one number; "max", absent and unreadable are 0.
func number(path string) uint64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func keyValues(path string) map[string]uint64 {
	out := map[string]uint64{}
	data, err := os.ReadFile(path)
	if err != nil {
		return out
	}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) >= 2 {
			if n, err := strconv.ParseUint(f[1], 10, 64); err == nil {
				out[f[0]] = n
			}
		}
	}
	return out
}
