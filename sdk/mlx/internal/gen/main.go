// Command gen writes sdk/mlx's dlopen shim and op wrappers from the table mlxc_api.txt.
//
// With -headers it first makes the table again from mlx-c's headers; with -check it writes nothing and fails when a file
// on disk differs from what it would write. The headers themselves are not part of this repository.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
)

const tableFile = "mlxc_api.txt"

func main() {
	dir := flag.String("dir", ".", "the folder of package mlx")
	hdr := flag.String("headers", "", "mlx-c's folder mlx/c: make the table again from its headers")
	check := flag.Bool("check", false, "write nothing; fail when a file differs")
	flag.Parse()
	if err := run(*dir, *hdr, *check); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(dir, hdr string, check bool) error {
	outputs := map[string][]byte{}
	var table string
	if hdr != "" {
		t, err := extract(hdr)
		if err != nil {
			return err
		}
		table = t
		outputs[tableFile] = []byte(t)
	} else {
		b, err := os.ReadFile(filepath.Join(dir, tableFile))
		if err != nil {
			return err
		}
		table = string(b)
	}
	api, err := parseTable(table)
	if err != nil {
		return fmt.Errorf("%s: %w", tableFile, err)
	}
	ops, err := api.ops()
	if err != nil {
		return fmt.Errorf("%s: %w", tableFile, err)
	}
	outputs["shim_gen.h"] = emitHeader(api, ops)
	outputs["shim_gen.c"] = emitShim(api, ops)
	goSrc, err := format.Source(emitGo(ops))
	if err != nil {
		return fmt.Errorf("ops_gen.go: %w", err)
	}
	outputs["ops_gen.go"] = goSrc
	for name, want := range outputs {
		path := filepath.Join(dir, name)
		have, err := os.ReadFile(path)
		if err == nil && bytes.Equal(have, want) {
			continue
		}
		if check {
			return fmt.Errorf("%s differs from what the generator writes: run go generate ./mlx", path)
		}
		if err := os.WriteFile(path, want, 0o644); err != nil {
			return err
		}
	}
	return nil
}
