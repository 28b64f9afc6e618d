package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stderr)
	if err == nil {
		return
	}
	var many interface{ Unwrap() []error }
	if errors.As(err, &many) {
		for _, e := range many.Unwrap() {
			fmt.Fprintln(os.Stderr, "setup:", e)
		}
	} else {
		fmt.Fprintln(os.Stderr, "setup:", err)
	}
	if ctx.Err() != nil {
		os.Exit(130)
	}
	os.Exit(1)
}

const usage = "usage: setup [-root DIR] runtime [-variant NAME] | setup [-root DIR] package USE DEST"

// run parses the command line and carries out one command.
func run(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("setup", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	root := fs.String("root", ".", "the repository's folder")
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("%w; %s", err, usage)
	}
	s, err := newSetup(*root, out)
	if err != nil {
		return err
	}
	rest := fs.Args()
	if len(rest) == 0 {
		return errors.New(usage)
	}
	switch cmd, rest := rest[0], rest[1:]; {
	case cmd == "runtime":
		fs := flag.NewFlagSet("runtime", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		variant := fs.String("variant", defaultVariant(s.os), "cpu, metal or cuda13")
		if err := fs.Parse(rest); err != nil || fs.NArg() > 0 {
			return errors.New(usage)
		}
		return s.locked(ctx, func() error { return s.runtime(ctx, *variant) })
	case cmd == "package" && len(rest) == 2:
		return s.locked(ctx, func() error { return s.unpack(ctx, rest[0], rest[1]) })
	}
	return errors.New(usage)
}

func defaultVariant(goos string) string {
	if goos == "darwin" {
		return "metal"
	}
	return "cpu"
}

// setup is one run: where things lie, for which platform, and what is pinned.
type setup struct {
	root     string // the repository, absolute
	work     string // bin/native: wheels, unpacked wheels, sources, built libraries
	os, arch string
	versions *versions
	out      io.Writer
	getenv   func(string) string
}

func newSetup(root string, out io.Writer) (*setup, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	v, err := loadVersions(filepath.Join(abs, "native", "versions.json"))
	if err != nil {
		return nil, err
	}
	return &setup{
		root: abs, work: filepath.Join(abs, "bin", "native"), os: runtime.GOOS, arch: runtime.GOARCH,
		versions: v, out: out, getenv: os.Getenv,
	}, nil
}

// note prints one progress line.
func (s *setup) note(format string, args ...any) {
	fmt.Fprintf(s.out, "setup: "+format+"\n", args...)
}

// locked runs fn while this process alone may change bin/native and bin/runtime.
func (s *setup) locked(ctx context.Context, fn func() error) error {
	if err := os.MkdirAll(s.work, 0o755); err != nil {
		return err
	}
	release, err := lock(ctx, filepath.Join(s.work, "lock"), func(holder string) {
		s.note("another setup (process %s) is at work here, waiting for it", holder)
	})
	if err != nil {
		return err
	}
	defer release()
	return fn()
}
