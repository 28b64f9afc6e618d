package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
)

// machineRows say on what the figures were taken; the load is read before anything runs.
func machineRows() []Row {
	load := 0.0
	if f := strings.Fields(readText("/proc/loadavg")); len(f) > 0 {
		load, _ = strconv.ParseFloat(f[0], 64) // a machine that does not say has no figure
	}
	note := fmt.Sprintf("%s, %s/%s, %s, %s", cpuModel(), runtime.GOOS, runtime.GOARCH, runtime.Version(), siblings())
	return []Row{
		{Name: "machine/cores", Value: float64(runtime.NumCPU()), Unit: "cores", Note: note},
		{Name: "machine/load", Value: load, Unit: "runnable (1 min, before the bench)", Note: loadNote(load)},
	}
}

func loadNote(load float64) string {
	if load > 0.5 {
		return "the machine was not idle: read the spreads"
	}
	return ""
}

func readText(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func cpuModel() string {
	for line := range strings.SplitSeq(readText("/proc/cpuinfo"), "\n") {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// siblings says which logical cores share a physical one.
func siblings() string {
	files, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list")
	if err != nil || len(files) == 0 {
		return "core topology unknown"
	}
	groups := map[string]bool{}
	for _, f := range files {
		groups[readText(f)] = true
	}
	var shared []string
	for g := range groups {
		if strings.ContainsAny(g, ",-") {
			shared = append(shared, g)
		}
	}
	if len(shared) == 0 {
		return "no SMT siblings"
	}
	sort.Strings(shared)
	return "SMT siblings: " + strings.Join(shared, "; ")
}
