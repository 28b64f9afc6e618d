package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// guidanceRows time the masks of constrained decoding at 128,256 ids (bench/guidance).
func (o options) guidanceRows(ctx context.Context) ([]Row, error) {
	program := filepath.Join(o.root, "bin", "tools", "guidance-bench")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, "./guidance")
	build.Dir, build.Env = filepath.Join(o.root, "bench"), append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("guidance: %w: %s", err, out)
	}
	library := filepath.Join(o.root, "bin", "runtime", "cpu", "mlx", "lib", "libguidance.so")
	cmd := exec.CommandContext(ctx, program, "-library", library, "-model", o.model, "-repeats", strconv.Itoa(o.repeats))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("guidance: %w", err)
	}
	var p50, p99, compile, vocabulary []float64
	var masks int
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var r struct {
			Masks                     int
			P50, P99, New, Vocabulary float64
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("guidance: %w", err)
		}
		masks, p50, p99 = r.Masks, append(p50, r.P50), append(p99, r.P99)
		compile, vocabulary = append(compile, r.New), append(vocabulary, r.Vocabulary)
	}
	note := fmt.Sprintf("%d masks of ten grammars a repeat, each grammar just compiled, 128256 ids", masks)
	return []Row{
		single("guidance/mask/p50", "us", p50, "< 100 us", note),
		single("guidance/mask/p99", "us", p99, "< 1000 us", note),
		single("guidance/compile", "us", compile, "", "median of the ten grammars"),
		single("guidance/vocabulary", "us", vocabulary[:1], "", "once a model"),
	}, nil
}
