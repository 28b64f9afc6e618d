package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// kernelRows time every kernel alone (bench/kernels), beside the bandwidth or the best matmul of the machine, whichever bounds it.
func (o options) kernelRows(ctx context.Context) ([]Row, error) {
	program := filepath.Join(o.root, "bin", "tools", "kernels-bench")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, "./kernels")
	build.Dir, build.Env = filepath.Join(o.root, "bench"), append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("kernels: %w: %s", err, out)
	}
	best, _, err := bestMatmul(ctx, o.python, filepath.Join(o.root, "bench", "peers", "matmul.py"), o.threads)
	if err != nil {
		return nil, err
	}
	memory, _ := readBandwidth(int(o.threads), o.repeats)
	cmd := exec.CommandContext(ctx, program, "-runtime", filepath.Join(o.root, "bin", "runtime", "cpu"),
		"-threads", strconv.Itoa(int(o.threads)), "-repeats", strconv.Itoa(o.repeats))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	var rows []Row
	picking := map[string][]float64{} // a row to come: sampling is held against the step, which is measured after it
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var k struct {
			Name         string
			Microseconds []float64
			Bytes, Flops float64
		}
		if err := json.Unmarshal(lines.Bytes(), &k); err != nil {
			return nil, fmt.Errorf("kernels: %w", err)
		}
		us := median(k.Microseconds)
		if strings.HasPrefix(k.Name, "sample/") {
			picking[k.Name] = k.Microseconds
		}
		read, matmul := k.Bytes/(us*1e3)/median(memory), k.Flops/(us*1e3)/median(best)
		name, fraction, of := "kernel/"+k.Name, read, "of read bandwidth"
		if matmul > read {
			fraction, of = matmul, "of the best matmul"
		}
		rows = append(rows, single(name, "us", k.Microseconds, "", fmt.Sprintf("%.4g MB, %.4g MFLOP", k.Bytes/1e6, k.Flops/1e6)),
			Row{Name: name + "/fraction", Value: fraction, Unit: of})
		if strings.HasPrefix(k.Name, "step/") {
			for _, sample := range slices.Sorted(maps.Keys(picking)) {
				rows = append(rows, Row{
					Name: sample + "/of-a-step", Value: 100 * median(picking[sample]) / us, Unit: "%", Goal: "<= 5",
					Note: fmt.Sprintf("%.4g us of picking, %.4g us of a step's matrices", median(picking[sample]), us),
				})
			}
		}
	}
	return rows, nil
}
