package machine

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// system is where the kernel's files lie; tests have their own.
type system struct{ proc, cgroup string }

var here = system{"/proc", "/sys/fs/cgroup"}

// Memory is the memory there is and what is available now, in bytes: the machine's, or less where a control group limits this
// process. Zero: not known.
func Memory() (total, available uint64) { return here.memory() }

func (s system) memory() (total, available uint64) {
	fields := keyValues(filepath.Join(s.proc, "meminfo"))
	total, available = fields["MemTotal:"]<<10, fields["MemAvailable:"]<<10
	for _, g := range s.groups() {
		limit, used := g.smallest()
		if limit == 0 || limit >= total {
			continue
		}
		total, available = limit, min(available, limit-min(used, limit))
	}
	return total, available
}

// OOMKills counts the processes of this process's control group that the kernel killed for memory, or the machine's where the
// group does not say. The count only grows; ok is false where nobody counts.
func OOMKills() (count uint64, ok bool) { return here.oomKills() }

func (s system) oomKills() (count uint64, ok bool) {
	for _, g := range s.groups() {
		for dir := g.dir; strings.HasPrefix(dir, g.root); dir = filepath.Dir(dir) {
			if n, ok := keyValues(filepath.Join(dir, g.eventsFile))["oom_kill"]; ok {
				return n, true
			}
		}
	}
	n, ok := keyValues(filepath.Join(s.proc, "vmstat"))["oom_kill"]
	return n, ok
}

// group is a control group that may limit memory, and how its version names things.
type group struct {
	root, dir                                 string
	limitFile, usedFile, cacheKey, eventsFile string
}

// groups are this process's: of version 1 where its memory controller is mounted, which a hybrid system may list after the
// empty one of version 2, and of version 2.
func (s system) groups() []group {
	data, err := os.ReadFile(filepath.Join(s.proc, "self", "cgroup"))
	if err != nil {
		return nil
	}
	var out []group
	for line := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0":
			out = append(out, group{s.cgroup, filepath.Join(s.cgroup, parts[2]), "memory.max", "memory.current", "inactive_file", "memory.events"})
		case strings.Contains(","+parts[1]+",", ",memory,"):
			root := filepath.Join(s.cgroup, "memory")
			out = append(out, group{
				root, filepath.Join(root, parts[2]), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control",
			})
		}
	}
	return out
}

// smallest is the smallest limit of the group and its parents, and what is used there without file cache that can be dropped.
// Inside a container the group's own path may not exist; the mount's root is then the container's.
func (g group) smallest() (limit, used uint64) {
	for dir := g.dir; strings.HasPrefix(dir, g.root); dir = filepath.Dir(dir) {
		n := number(filepath.Join(dir, g.limitFile))
		if n == 0 || (limit != 0 && n >= limit) {
			continue
		}
		cache := keyValues(filepath.Join(dir, "memory.stat"))[g.cacheKey]
		limit, used = n, number(filepath.Join(dir, g.usedFile))
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

// Resident is what a process takes of the memory now, in bytes; 0 when it is gone.
func Resident(pid int) uint64 {
	return keyValues(filepath.Join(here.proc, strconv.Itoa(pid), "status"))["VmRSS:"] << 10
}
