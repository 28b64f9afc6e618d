//go:build !unix

package main

import (
	"context"
	"errors"
	"os"
	"syscall"
)

// The runtime's libraries exist for Linux and macOS only; on other systems the host alone builds.
func lock(context.Context, string, func(string)) (func(), error) {
	return nil, errors.New("there is no MLX runtime for this system: plugins run on Linux and macOS")
}

func group() *syscall.SysProcAttr { return nil }

func stop(p *os.Process) error { return p.Kill() }
