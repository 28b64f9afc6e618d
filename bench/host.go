package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// hostRows measure the host binary: its size, how fast it starts, and what an idle server holds.
func hostRows(ctx context.Context, clade, model string) ([]Row, error) {
	info, err := os.Stat(clade)
	if err != nil {
		return nil, err
	}
	const starts = 20
	var ms []float64
	for range starts {
		start := time.Now()
		if out, err := exec.CommandContext(ctx, clade, "version").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("clade version: %w: %s", err, out)
		}
		ms = append(ms, float64(time.Since(start).Microseconds())/1e3)
	}
	rows := []Row{
		{Name: "host/binary", Value: float64(info.Size()) / 1e6, Unit: "MB", Goal: "< 25"},
		single("host/version", "ms", ms, "< 30", ""),
	}
	idle, err := idleMemory(ctx, clade, model)
	if err != nil {
		return nil, err
	}
	return append(rows, single("host/idle-serve-rss", "MB", idle, "< 30", "serve --lazy, no model opened, 2 s after its health answers")), nil
}

// idleMemory starts `clade serve --lazy`, so that no model is opened, and reads its resident size, three times.
func idleMemory(ctx context.Context, clade, model string) ([]float64, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("host/idle-serve-rss: read from /proc, which %s has not", runtime.GOOS)
	}
	var out []float64
	for range 3 {
		mb, err := idleOnce(ctx, clade, model)
		if err != nil {
			return nil, err
		}
		out = append(out, mb)
	}
	return out, nil
}

func idleOnce(ctx context.Context, clade, model string) (float64, error) {
	port, err := freePort(ctx)
	if err != nil {
		return 0, err
	}
	home, err := os.MkdirTemp("", "clade-bench-home-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(home)
	cmd := exec.CommandContext(ctx, clade, "serve", model, "--lazy", "--port", strconv.Itoa(port))
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home, "XDG_CACHE_HOME="+home)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // its exit code says interrupted
	}()
	if err := healthy(ctx, fmt.Sprintf("http://127.0.0.1:%d/health", port)); err != nil {
		return 0, fmt.Errorf("clade serve: %w: %s", err, log.String())
	}
	time.Sleep(2 * time.Second)
	return residentMB(cmd.Process.Pid)
}

func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func healthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer", url)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// residentMB is VmRSS in 10^6 bytes.
func residentMB(pid int) (float64, error) {
	path := filepath.Join("/proc", strconv.Itoa(pid), "status")
	for line := range strings.SplitSeq(readText(path), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("%s: no VmRSS", path)
}
