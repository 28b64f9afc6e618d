package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/clademl/clade/core/config"
	"github.com/clademl/clade/sdk/contract"
)

// maxInput bounds what a verb reads from a file or a pipe; any context is smaller. A device that never ends would take the
// machine's memory.
const maxInput = 64 << 20

// readInput reads a file, or stdin for "-".
func (a *app) readInput(path string) ([]byte, error) {
	if path == "-" {
		return readBounded("stdin", a.In)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, contract.Errorf(contract.NotFound, path, "cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	return readBounded(path, f)
}

func readBounded(name string, r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	switch {
	case err != nil:
		return nil, contract.Errorf(contract.NotFound, name, "cannot be read: %w", err)
	case len(data) > maxInput:
		return nil, contract.Errorf(contract.InvalidArgument, name, "is larger than the limit of %s", config.FormatBytes(maxInput))
	}
	return data, nil
}

// readText is readInput for a text: what is not UTF-8 is refused, as a tokenizer would put other characters in its place.
func (a *app) readText(path string) (string, error) {
	data, err := a.readInput(path)
	if err != nil {
		return "", err
	}
	return string(data), checkText(path, string(data))
}

func checkText(name, text string) error {
	for at, r := range text {
		if r != utf8.RuneError {
			continue
		}
		if _, size := utf8.DecodeRuneInString(text[at:]); size == 1 {
			return contract.Errorf(contract.InvalidArgument, name, "is not UTF-8 text: byte %d is 0x%02x", at, text[at])
		}
	}
	return nil
}

// checkOutput refuses a file that could not be written when a long computation has ended: its folder must be there, and a
// device or a folder is never replaced.
func checkOutput(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return contract.Errorf(contract.InvalidArgument, path, "is not a regular file, and would be replaced by one").WithNext("name a file")
	case err == nil:
		return nil
	}
	dir := filepath.Dir(path)
	if info, err = os.Stat(dir); err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", dir)
	}
	if err != nil {
		return contract.Errorf(contract.NotFound, path, "cannot be written: %w", err)
	}
	return nil
}
