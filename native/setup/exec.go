package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// command runs a program to its end. What it prints is kept and only its last lines are shown, and only on failure.
func (s *setup) command(ctx context.Context, dir, name string, args ...string) error {
	var tail tailBuffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = &tail, &tail
	cmd.SysProcAttr = group()
	cmd.Cancel = func() error { return stop(cmd.Process) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: stopped; run make setup again to go on", name)
	}
	fmt.Fprint(s.out, tail.String())
	return fmt.Errorf("%s: %w; its last lines stand above", strings.Join(append([]string{name}, args...), " "), err)
}

// tailBuffer keeps the last 8 KiB written to it.
type tailBuffer struct{ buf []byte }

const tailBytes = 8 << 10

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailBytes; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string {
	if len(t.buf) > 0 && !bytes.HasSuffix(t.buf, []byte("\n")) {
		return string(t.buf) + "\n"
	}
	return string(t.buf)
}

var _ io.Writer = (*tailBuffer)(nil)

// A tool is a prerequisite and how to get it.
type tool struct{ name, debian, macos string }

var (
	toolPython = tool{"python3", "python3 python3-pip", "python"}
	toolCargo  = tool{"cargo", "cargo", "rust"}
	toolCMake  = tool{"cmake", "cmake", "cmake"}
	toolMake   = tool{"make", "make", "make"}
	toolCXX    = tool{"c++", "g++", ""}
	toolCC     = tool{"cc", "gcc", ""}
)

func (s *setup) missing(t tool) error {
	how := "on Debian: apt-get install " + t.debian
	if s.os == "darwin" {
		how = "brew install " + t.macos
		if t.macos == "" {
			how = "xcode-select --install"
		}
	}
	return fmt.Errorf("%s is needed and was not found: %s", t.name, how)
}

// need reports every missing prerequisite at once, one line each.
func (s *setup) need(tools ...tool) error {
	var errs []error
	for _, t := range tools {
		name := t.name
		for variable, tt := range map[string]tool{"CXX": toolCXX, "CC": toolCC} {
			// CMake takes the compiler from the same variables; only the program's name is looked up.
			if f := strings.Fields(s.getenv(variable)); tt == t && len(f) > 0 {
				name = f[0]
			}
		}
		if _, err := exec.LookPath(name); err != nil {
			errs = append(errs, s.missing(t))
		}
	}
	return errors.Join(errs...)
}

// needPip tells a Python without pip from no Python.
func (s *setup) needPip(ctx context.Context) error {
	if err := s.need(toolPython); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "python3", "-m", "pip", "--version")
	cmd.Env = append(os.Environ(), "PIP_DISABLE_PIP_VERSION_CHECK=1")
	if err := cmd.Run(); err != nil {
		return s.missing(tool{"pip (python3 -m pip)", "python3-pip", "python"})
	}
	return nil
}
