package rules

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// files lists the repository's files that git does not ignore and that exist.
func files(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var list []string
	for name := range strings.SplitSeq(string(out), "\x00") {
		if info, err := os.Lstat(filepath.Join(root, name)); name != "" && err == nil && info.Mode().IsRegular() {
			list = append(list, name)
		}
	}
	if len(list) == 0 {
		t.Fatal("no files")
	}
	return list
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func generated(data []byte) bool {
	head := data[:min(len(data), 2048)]
	return bytes.Contains(head, []byte("Code generated ")) && bytes.Contains(head, []byte("DO NOT EDIT"))
}

// hosts are the package registries' host names, in two halves so that this file names none of them.
func hosts() *regexp.Regexp {
	var list []string
	for _, h := range [][2]string{
		{"pypi", "org"},
		{"pythonhosted", "org"},
		{"crates", "io"},
		{"proxy.golang", "org"},
		{"sum.golang", "org"},
		{"npmjs", "org"},
		{"yarnpkg", "com"},
		{"maven", "org"},
		{"deb.debian", "org"},
		{"ghcr", "io"},
	} {
		list = append(list, regexp.QuoteMeta(h[0]+"."+h[1]))
	}
	return regexp.MustCompile(`(?i)\b(` + strings.Join(list, "|") + `)\b`)
}

// The registries are reached through the clients' own settings, so that a mirror or an air-gapped proxy just works.
func TestNoRegistryHostIsNamed(t *testing.T) {
	hosts := hosts()
	for _, name := range files(t) {
		if path.Base(name) == "Cargo.lock" {
			continue // cargo itself writes the name of its index there; it is an identifier, not an address
		}
		if m := hosts.Find(read(t, name)); m != nil {
			t.Errorf("%s names the registry host %s", name, m)
		}
	}
}

func TestNoFileOverOneMegabyteIsKept(t *testing.T) {
	for _, name := range files(t) {
		if info, err := os.Stat(filepath.Join(root, name)); err == nil && info.Size() > 1<<20 {
			t.Errorf("%s: %d bytes", name, info.Size())
		}
	}
}

// The work that is missing belongs into an issue, and a test that cannot run fails and names what it needs.
func TestNoPromisesAndNoHiddenSkips(t *testing.T) {
	promise := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b|\bt\.Skip(f|Now)?\(`)
	for _, name := range files(t) {
		if ext := path.Ext(name); ext != ".go" && ext != ".c" && ext != ".h" && ext != ".cpp" && ext != ".py" && ext != ".proto" {
			continue
		}
		data := read(t, name)
		if generated(data) {
			continue
		}
		for i, line := range strings.Split(string(data), "\n") {
			if promise.MatchString(line) {
				t.Errorf("%s:%d: %s", name, i+1, strings.TrimSpace(line))
			}
		}
	}
}

func TestEveryPackageHasADoc(t *testing.T) {
	doc := regexp.MustCompile(`(?m)^(// (Package|Command) |/\*\n?(Package|Command) )`)
	has := map[string]bool{}
	for _, name := range files(t) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") {
			continue
		}
		dir := path.Dir(name)
		data := read(t, name)
		has[dir] = has[dir] || generated(data) || doc.Match(data)
	}
	for dir, ok := range has {
		if !ok {
			t.Errorf("%s: no package doc", dir)
		}
	}
}

func TestNoRoomForEverything(t *testing.T) {
	for _, name := range files(t) {
		for part := range strings.SplitSeq(path.Dir(name), "/") {
			switch part {
			case "util", "utils", "common", "helpers", "pkg", "misc":
				t.Errorf("%s: a folder has one purpose, and %q is none", name, part)
			}
		}
	}
}

// The modules require one another at their release version; inside the repository go.work makes that the folder.
func TestNoModuleReplacesAnother(t *testing.T) {
	replace := regexp.MustCompile(`(?m)^\s*replace\b`)
	for _, name := range files(t) {
		if path.Base(name) == "go.mod" && replace.Match(read(t, name)) {
			t.Errorf("%s has a replace line", name)
		}
	}
}
