// Command copyproject copies examples/leaf into project/, run by go generate in core/plugins/scaffold.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run("../../../examples/leaf", "project"); err != nil {
		fmt.Fprintln(os.Stderr, "copyproject:", err)
		os.Exit(1)
	}
}

// run copies every file of from but what its build makes.
func run(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		switch {
		case err != nil:
			return err
		case e.IsDir() && rel == "build":
			return filepath.SkipDir
		case e.IsDir():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		out := filepath.Join(to, rel+".txt")
		if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
			return err
		}
		return os.WriteFile(out, data, 0o644)
	})
}
