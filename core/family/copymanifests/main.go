// Command copymanifests copies plugins/<name>/plugin.yaml to core/family/embedded/<name>.yaml, from where the host embeds
// them. It runs in core/family, by go generate.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "copymanifests:", err)
		os.Exit(1)
	}
}

func run() error {
	sources, err := filepath.Glob("../../plugins/*/plugin.yaml")
	if err != nil {
		return err
	}
	old, err := filepath.Glob("embedded/*.yaml")
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("embedded", 0o755); err != nil {
		return err
	}
	for _, path := range sources {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := filepath.Base(filepath.Dir(path))
		if err := os.WriteFile(filepath.Join("embedded", name+".yaml"), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
