//go:build linux

package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets a test run this program as a process of its own, so that it can be killed.
func TestMain(m *testing.M) {
	if os.Getenv("SETUP_TEST_MAIN") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fixture is a small repository whose pip, cargo and cmake are scripts: they log their name to calls and do what the
// test asks for. The compiler is the real one.
type fixture struct {
	t     *testing.T
	root  string
	bin   string // the only folder of PATH besides the system's
	wheel []byte
	v     versions
}

const mangled = "_ZN3mlx4core3addERKNS_5arrayES3_"

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, root: t.TempDir(), bin: t.TempDir()}
	t.Setenv("PATH", f.bin+":"+os.Getenv("PATH"))
	t.Setenv("CLADE_MLXC_DIR", "")
	f.script("pkg-config", "exit 1")
	libmlx := f.compile("libmlx.so", "int "+mangled+"(void) { return 1; }")
	f.wheel = zipOf(t, map[string][]byte{
		"mlx/lib/libmlx.so": libmlx, "mlx/include/mlx/mlx.h": []byte("//\n"),
		"mlx_cpu.libs/libblas.so.3": libmlx, "mlx_cpu-0.dist-info/licenses/LICENSE": []byte("MIT\n"),
	})
	tree := filepath.Join(t.TempDir(), "mlx-c")
	f.write(filepath.Join(tree, "CMakeLists.txt"), "project(x)\n")
	f.write(filepath.Join(tree, "mlx", "c", "mlx.h"), "//\n")
	sum, err := treeDigest(tree)
	f.must(err)
	f.v = versions{MLX: "0.32.2", Runtimes: []runtimeSpec{{
		Variant: "cpu", OS: "linux", Arch: "amd64", Verified: true,
		LibMLX: "mlx/lib/libmlx.so", LibMLXC: "mlx/lib/libmlxc.so", Keep: []string{"mlx/lib/", "mlx_cpu.libs/"},
		Wheels: []wheel{{Name: "mlx-cpu", Version: "0", Platform: "any", File: "mlx.whl", SHA256: textDigest(string(f.wheel))}},
	}}}
	f.v.MLXC.Version, f.v.MLXC.Crate, f.v.MLXC.CrateVersion = "0.6.0", "mlx-sys", "0.6.0"
	f.v.MLXC.Tree, f.v.MLXC.TreeSHA256 = "src/mlx-c", sum
	f.save()
	f.write(filepath.Join(f.root, "native", "licences", "README.txt"), "licences\n")
	f.write(filepath.Join(f.root, "pip.whl"), string(f.wheel))
	f.script("python3", `case "$*" in *--version*) exit 0;; esac
while [ "$1" != --dest ]; do shift; done
cp "$FIXTURE/pip.whl" "$2/mlx.whl"`)
	f.script("cargo", `for last; do :; done
mkdir -p "$last/mlx-sys-0.6.0/src" && cp -R `+tree+` "$last/mlx-sys-0.6.0/src/mlx-c"`)
	f.script("cmake", `[ "$1" = --build ] || { mkdir -p "$4"; exit 0; }
echo 'int mlx_add(void){return 0;}' > "$2/a.c" && cc -shared -fPIC -o "$2/libmlxc.so" "$2/a.c" -Wl,--enable-new-dtags,-rpath,'${RPATH_OF_TEST:-$ORIGIN}'`)
	f.setRunpath("$ORIGIN")
	t.Setenv("FIXTURE", f.root)
	return f
}

// setRunpath fixes what the cmake script links with; the shell must not see the dollar sign.
func (f *fixture) setRunpath(path string) {
	text, err := os.ReadFile(filepath.Join(f.bin, "cmake"))
	f.must(err)
	head, _, _ := strings.Cut(string(text), "-rpath,")
	f.write(filepath.Join(f.bin, "cmake"), head+"-rpath,'"+path+"'\n")
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) write(path, text string) {
	f.t.Helper()
	f.must(os.MkdirAll(filepath.Dir(path), 0o755))
	f.must(os.WriteFile(path, []byte(text), 0o755))
}

func (f *fixture) script(name, body string) {
	f.t.Helper()
	f.write(filepath.Join(f.bin, name), "#!/bin/sh\necho "+name+" >> \"$FIXTURE/calls\"\n"+body+"\n")
}

func (f *fixture) save() {
	f.t.Helper()
	data, err := json.Marshal(f.v)
	f.must(err)
	f.write(filepath.Join(f.root, "native", "versions.json"), string(data))
}

func (f *fixture) compile(name, code string, flags ...string) []byte {
	f.t.Helper()
	dir := f.t.TempDir()
	f.write(filepath.Join(dir, "a.c"), code)
	args := append([]string{"-shared", "-fPIC", "-o", filepath.Join(dir, name), filepath.Join(dir, "a.c")}, flags...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		f.t.Fatalf("cc: %v\n%s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	f.must(err)
	return data
}

// run is one `setup runtime` inside this process; the platform is fixed so that the fixture's runtime is found.
func (f *fixture) run(ctx context.Context) (string, error) {
	var out bytes.Buffer
	s, err := newSetup(f.root, &out)
	f.must(err)
	s.os, s.arch = "linux", "amd64"
	err = s.locked(ctx, func() error { return s.runtime(ctx, "cpu") })
	return out.String(), err
}

// calls returns which of the scripts ran since the last call.
func (f *fixture) calls() string {
	path := filepath.Join(f.root, "calls")
	data, _ := os.ReadFile(path)
	os.Remove(path)
	return strings.Join(strings.Fields(string(data)), " ")
}

func (f *fixture) path(elem ...string) string {
	return filepath.Join(append([]string{f.root, "bin"}, elem...)...)
}

// prefix makes an installed mlx-c.
func (f *fixture) prefix(version, code string) string {
	dir := f.t.TempDir()
	f.write(filepath.Join(dir, "lib", "libmlxc.so"), string(f.compile("libmlxc.so", code)))
	f.write(filepath.Join(dir, "share", "cmake", "MLXC", "MLXCConfigVersion.cmake"), "set(PACKAGE_VERSION \""+version+"\")\n")
	return dir
}

func zipOf(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for name, data := range files {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func mustContain(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("%s: no error, want one with %q", what, parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("%s: error %q has no %q", what, err, part)
		}
	}
}
