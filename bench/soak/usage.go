package main

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// usage is what a server holds.
type usage struct {
	descriptors, goroutines, plugins int
	host, plugin, planned, disk      float64 // megabytes
}

func (u usage) String() string {
	return fmt.Sprintf("%d descriptors, %d goroutines, host %.1f MB, %d plugins, plugin %.1f of %.1f MB planned, disk %.1f MB",
		u.descriptors, u.goroutines, u.host, u.plugins, u.plugin, u.planned, u.disk)
}

// Growth beyond these is a leak: clients that just left leave at most noise.
const (
	descriptorSlack = 8
	goroutineSlack  = 12
	megabyteSlack   = 24
	planSlack       = 64 << 20 / 1e6 // what a plugin may take beyond its plan, or a twentieth of it where that is more
)

func (s *server) usage(ctx context.Context) (u usage, err error) {
	pid := s.cmd.Process.Pid
	fds, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return u, err
	}
	u.descriptors = len(fds)
	pids, err := children(pid)
	if err != nil {
		return u, err
	}
	u.plugins = len(pids)
	if u.host, err = resident(pid); err != nil {
		return u, err
	}
	for _, p := range pids {
		r, err := resident(p)
		if err != nil {
			return u, err
		}
		u.plugin += r
	}
	if err := s.counters(ctx, map[string]func(float64){
		"go_goroutines":       func(v float64) { u.goroutines = int(v) },
		"clade:planned_bytes": func(v float64) { u.planned = v / 1e6 },
	}); err != nil {
		return u, err
	}
	err = filepath.WalkDir(filepath.Join(s.home, "cache", "clade", "prefix"), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			u.disk += float64(info.Size()) / 1e6
		}
		return nil // another process may have removed it
	})
	return u, err
}

// counters reads some of the server's own metrics.
func (s *server) counters(ctx context.Context, read map[string]func(float64)) error {
	resp, err := get(ctx, s.url+"/metrics")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		if fn, ok := read[name]; ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return fmt.Errorf("metric %s: %w", name, err)
			}
			fn(v)
		}
	}
	return nil
}

func (u usage) grownFrom(before usage) error {
	switch {
	case u.plugins != 1:
		return fmt.Errorf("%d plugins run", u.plugins)
	case u.descriptors > before.descriptors+descriptorSlack:
		return fmt.Errorf("%d descriptors are open, %d were", u.descriptors, before.descriptors)
	case u.goroutines > before.goroutines+goroutineSlack:
		return fmt.Errorf("%d goroutines run, %d did", u.goroutines, before.goroutines)
	case u.host > before.host+megabyteSlack:
		return fmt.Errorf("%.1f MB are resident, %.1f were", u.host, before.host)
	case u.plugin > u.planned+max(planSlack, u.planned/20):
		return fmt.Errorf("the plugin takes %.1f MB, planned were %.1f", u.plugin, u.planned)
	case u.disk > kept/1e6:
		return fmt.Errorf("the prefix cache on disk takes %.1f MB of %.1f", u.disk, kept/1e6)
	}
	return nil
}

// resident is what a process takes, in megabytes.
func resident(pid int) (float64, error) {
	statm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0, err
	}
	var size, pages float64
	_, err = fmt.Sscan(string(statm), &size, &pages)
	return pages * float64(os.Getpagesize()) / 1e6, err
}

// alive is false for a zombie, which only waits for init.
func alive(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func children(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		// pid (comm) state ppid: comm may hold spaces and parentheses
		rest := string(data)[strings.LastIndexByte(string(data), ')')+1:]
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				return nil, err
			}
			out = append(out, child)
		}
	}
	return out, nil
}
