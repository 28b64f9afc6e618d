// Package scaffold begins a third party's family: `clade plugin new`.
//
// What it writes is examples/leaf of this repository under another name: a module that builds alone, with the sdk as its only part of
// clade. project/ holds its files as they are, with .txt behind their names so that no Go build takes them for this module's; go generate
// copies them. Invariants: nothing that exists is overwritten; what is generated under the example's own name is the example, byte for
// byte. Not for: building it (its Makefile).
package scaffold

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/clademl/clade/sdk/contract"
)

//go:generate go run ./copyproject

//go:embed all:project
var project embed.FS

const (
	root   = "project"
	suffix = ".txt"
	// The example's own names.
	exampleName, exampleTitle, exampleDomain = "leaf", "Leaf", "example.org"
)

// Options of a new family.
type Options struct {
	// Name of the plugin and the family: lower-case letters and digits.
	Name string
	// Domain is what the graph id and the module begin with; empty is example.org.
	Domain string
	// SDKProxy is a folder that serves the sdk to go, while no proxy does; empty: none is needed.
	SDKProxy string
}

var (
	goodName   = regexp.MustCompile(`^[a-z][a-z0-9]{1,23}$`)
	goodDomain = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*(\.[a-z0-9][a-z0-9-]*)+$`)
)

// New writes the project into dir, which must not exist or be empty, and gives the files' paths below it.
func New(dir string, o Options) ([]string, error) {
	if o.Domain == "" {
		o.Domain = exampleDomain
	}
	switch {
	case !goodName.MatchString(o.Name):
		return nil, contract.Errorf(contract.InvalidArgument, o.Name, "a name is two to 24 lower-case letters and digits, and begins with a letter")
	case !goodDomain.MatchString(o.Domain):
		return nil, contract.Errorf(contract.InvalidArgument, o.Domain, "is no domain; the graph id of a third party is DOMAIN/NAME")
	case o.SDKProxy != "" && !filepath.IsAbs(o.SDKProxy):
		return nil, contract.Errorf(contract.InvalidArgument, o.SDKProxy, "the folder of the sdk must be an absolute path")
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return nil, contract.Errorf(contract.InvalidArgument, dir, "is not empty").WithNext("name another folder with --dir")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, contract.Errorf(contract.InvalidArgument, dir, "%w", err)
	}
	names := strings.NewReplacer(exampleDomain, o.Domain, exampleName, o.Name, exampleTitle, strings.ToUpper(o.Name[:1])+o.Name[1:])
	var written []string
	err := fs.WalkDir(project, root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := project.ReadFile(path)
		if err != nil {
			return err
		}
		rel := names.Replace(strings.TrimSuffix(strings.TrimPrefix(path, root+"/"), suffix))
		text := names.Replace(string(data))
		if rel == "Makefile" {
			text = strings.Replace(text, "\nSDK_PROXY ?=\n", "\nSDK_PROXY ?= "+o.SDKProxy+"\n", 1)
			text = strings.Replace(text, "SDK_PROXY ?= \n", "SDK_PROXY ?=\n", 1)
		}
		to := filepath.Join(dir, filepath.FromSlash(rel))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		written = append(written, rel)
		return os.WriteFile(to, []byte(text), 0o644)
	})
	if err != nil {
		return written, contract.Errorf(contract.Internal, dir, "%w", err)
	}
	return written, nil
}
