// Command licences checks the licence of every module that is linked into clade and its plugins.
//
//	licences [-doc docs/dependencies.md] [-texts FILE] DIR:PACKAGE...   (for example core:./cmd/clade plugins/qwen:.)
//
// It walks the packages of each build (not of the module graph: a module that only a test or a tool needs is not
// shipped), reads each module's licence files and compares what google/licensecheck finds in them with the list below.
// With -doc it also holds that page to naming each of these modules; with -texts it writes their licence files into one, which
// travels with the program.
//
// Invariants: a module without a licence file, with a text that is not recognized, or with any licence outside the list
// fails the check, by name. Not for: the native libraries (native/licences) and data.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/google/licensecheck"
)

// allowed are the licences that a linked module may have.
var allowed = map[string]bool{
	"MIT": true, "MIT-0": true, "BSD-2-Clause": true, "BSD-3-Clause": true, "0BSD": true, "Apache-2.0": true,
	"MPL-2.0": true, "ISC": true, "Unlicense": true,
}

// minCoverage is the share of a licence file, in percent, that has to be known licence text.
const minCoverage = 75

const ownPrefix = "github.com/clademl/clade/"

// module is a linked module and the folders of it that hold linked packages, its root always among them.
type module struct {
	Path, Version, Dir string
	dirs               map[string]bool
}

func main() {
	doc := flag.String("doc", "", "a page that has to name every module")
	texts := flag.String("texts", "", "file to write the licence texts to")
	flag.Parse()
	if err := run(os.Stdout, *doc, *texts, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer, doc, texts string, builds []string) error {
	modules := map[string]module{}
	for _, b := range builds {
		if err := collect(b, modules); err != nil {
			return err
		}
	}
	if len(modules) == 0 {
		return errors.New("licences: no module to check: name builds as DIR:PACKAGE")
	}
	var page []byte
	if doc != "" {
		var err error
		if page, err = os.ReadFile(doc); err != nil {
			return err
		}
	}
	var errs []error
	for _, m := range sorted(modules) {
		found, err := licences(m.dirs)
		if err == nil {
			err = judge(found)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
			continue
		}
		if doc != "" && !bytes.Contains(page, []byte(m.Path)) {
			errs = append(errs, fmt.Errorf("%s %s: %s does not name it", m.Path, m.Version, doc))
		}
		fmt.Fprintf(out, "%s %s %s\n", m.Path, m.Version, strings.Join(found, " "))
	}
	if texts != "" && errs == nil {
		return writeTexts(texts, sorted(modules))
	}
	return errors.Join(errs...)
}

// writeTexts writes every module's licence files, headed by its name.
func writeTexts(path string, modules []module) error {
	var out bytes.Buffer
	for _, m := range modules {
		for _, dir := range slices.Sorted(maps.Keys(m.dirs)) {
			names, err := licenceFiles(dir)
			if err != nil {
				return err
			}
			for _, name := range names {
				text, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					return err
				}
				within := strings.TrimPrefix(filepath.ToSlash(strings.TrimPrefix(dir, m.Dir)), "/")
				fmt.Fprintf(&out, "==== %s %s: %s\n\n%s\n\n", m.Path, m.Version, strings.TrimPrefix(within+"/"+name, "/"), bytes.TrimSpace(text))
			}
		}
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, out.Bytes()) {
		now := time.Now()
		return os.Chtimes(path, now, now) // for make
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// licenceFiles are the names of a folder's licence files.
func licenceFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() && licenceFile(e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// collect adds the modules of one build, DIR:PACKAGE.
func collect(build string, into map[string]module) error {
	dir, pkg, ok := strings.Cut(build, ":")
	if !ok {
		return fmt.Errorf("%s: want DIR:PACKAGE", build)
	}
	cmd := exec.Command("go", "list", "-deps", "-json=Dir,Module,Standard", pkg)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	data, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: go list: %w", build, err)
	}
	for dec := json.NewDecoder(bytes.NewReader(data)); ; {
		var p struct {
			Dir      string
			Module   *module
			Standard bool
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: go list: %w", build, err)
		}
		if p.Module == nil || p.Standard || strings.HasPrefix(p.Module.Path, ownPrefix) {
			continue
		}
		m, seen := into[p.Module.Path]
		if !seen {
			m = *p.Module
			m.dirs = map[string]bool{}
			into[m.Path] = m
		}
		// A package may carry code of others under a licence of its own: every folder up to the root counts.
		for dir := p.Dir; strings.HasPrefix(dir, m.Dir); dir = filepath.Dir(dir) {
			m.dirs[dir] = true
		}
	}
}

func sorted(m map[string]module) []module {
	list := make([]module, 0, len(m))
	for _, v := range m {
		list = append(list, v)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Path < list[j].Path })
	return list
}

// licences returns the licences found in the licence files of folders.
func licences(dirs map[string]bool) ([]string, error) {
	found := map[string]bool{}
	files := 0
	for dir := range dirs {
		names, err := licenceFiles(dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			files++
			if err := scan(filepath.Join(dir, name), found); err != nil {
				return nil, err
			}
		}
	}
	if files == 0 {
		return nil, errors.New("no licence file")
	}
	ids := make([]string, 0, len(found))
	for id := range found {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	return ids, nil
}

// scan adds the licences of one file to found.
func scan(path string, found map[string]bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	cov := licensecheck.Scan(text)
	if cov.Percent < minCoverage {
		return fmt.Errorf("%s: only %.0f%% of it is a known licence text", path, cov.Percent)
	}
	for _, m := range cov.Match {
		if !m.IsURL {
			found[m.ID] = true
		}
	}
	return nil
}

func licenceFile(name string) bool {
	upper := strings.ToUpper(name)
	// LICENSE.docs is of a module's documentation, which no program holds.
	if strings.HasSuffix(upper, ".GO") || strings.HasSuffix(upper, ".DOCS") {
		return false
	}
	return strings.HasPrefix(upper, "LICENSE") || strings.HasPrefix(upper, "LICENCE") || strings.HasPrefix(upper, "COPYING") || strings.HasPrefix(upper, "UNLICENSE")
}

func judge(ids []string) error {
	if len(ids) == 0 {
		return errors.New("no licence text in its licence file")
	}
	for _, id := range ids {
		if !allowed[id] {
			return fmt.Errorf("licence %s is not in the list of tools/licences", id)
		}
	}
	return nil
}
