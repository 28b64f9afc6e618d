package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A module outside the tree builds with the sdk from the written proxy and the caches of this machine alone.
func TestAModuleOutsideTheTreeBuildsWithTheSDK(t *testing.T) {
	proxy := t.TempDir()
	if err := run("../../sdk", "v0.1.0", proxy); err != nil {
		t.Fatal(err)
	}
	first := read(t, proxy)
	if err := run("../../sdk", "v0.1.0", proxy); err != nil {
		t.Fatal(err)
	}
	if read(t, proxy) != first {
		t.Fatal("the same tree gave another zip")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.org/x\n\ngo 1.26.0\n\nrequire github.com/clademl/clade/sdk v0.1.0\n",
		"main.go": "package main\n\nimport \"github.com/clademl/clade/sdk/contract\"\n\nfunc main() { println(contract.Major) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := exec.Command("go", "env", "GOPROXY", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	usual := strings.Fields(string(got))
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GONOSUMDB=*", "GOMODCACHE="+modcache(t),
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(usual[1], "cache", "download")+","+usual[0])
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "x"), ".")
	cmd.Dir, cmd.Env = dir, env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(filepath.Join(dir, "x")).CombinedOutput()
	if err != nil || len(out) == 0 {
		t.Fatalf("%v %s", err, out)
	}
}

// modcache is a cache of its own that reads downloads from this machine's, so that our module never lands there.
func modcache(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { // the go command writes its cache read-only
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return nil
		})
	})
	return dir
}

func read(t *testing.T, proxy string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(proxy, "github.com/clademl/clade/sdk/@v/v0.1.0.zip"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
