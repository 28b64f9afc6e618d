//go:build linux

package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// withGuidance gives the fixture a crate, a cargo that builds and describes it, and a rustc of some version.
func (f *fixture) withGuidance(rustc, licence string) {
	f.t.Helper()
	f.v.Runtimes[0].LibGuidance = "mlx/lib/libguidance.so"
	f.save()
	f.write(filepath.Join(f.root, "native", "guidance", "Cargo.toml"), "[package]\n")
	crates := f.t.TempDir()
	for _, name := range []string{"engine", "macros", "builder"} {
		f.write(filepath.Join(crates, name, "LICENSE-MIT"), "MIT of "+name+"\n")
	}
	crate := func(name, licence, kind string) string {
		return `{"id":"` + name + `","name":"` + name + `","version":"1.0.0","license":"` + licence + `","manifest_path":"` + filepath.Join(crates, name, "Cargo.toml") +
			`","targets":[{"kind":["` + kind + `"]}]}`
	}
	metadata := `{"packages":[` + crate("root", "", "cdylib") + "," + crate("engine", licence, "lib") + "," + crate("macros", "GPL-3.0", "proc-macro") + "," +
		crate("builder", "GPL-3.0", "lib") + `],"resolve":{"root":"root","nodes":[{"id":"root","deps":[{"pkg":"engine","dep_kinds":[{"kind":null}]},` +
		`{"pkg":"builder","dep_kinds":[{"kind":"build"}]}]},{"id":"engine","deps":[{"pkg":"macros","dep_kinds":[{"kind":null}]}]}]}}`
	f.write(filepath.Join(f.root, "metadata.json"), metadata)
	good, err := os.ReadFile(filepath.Join(f.bin, "cargo"))
	f.must(err)
	f.script("rustc", "echo '"+rustc+"'")
	f.script("cargo", `case "$1" in
metadata) cat "$FIXTURE/metadata.json"; exit 0;;
build) while [ "$1" != --target-dir ]; do shift; done
mkdir -p "$2/release" && echo 'int llg(void){return 0;}' > "$2/a.c" && exec cc -shared -fPIC -o "$2/release/libguidance.so" "$2/a.c";;
esac
`+strings.Join(strings.SplitN(string(good), "\n", 3)[2:], "\n"))
}

func TestGuidanceIsBuiltOnceWithTheLicencesOfWhatIsLinked(t *testing.T) {
	f := newFixture(t)
	f.withGuidance("rustc 1.87.0 (x)", "Unlicense OR MIT")
	_, err := f.run(t.Context())
	f.must(err)
	for name, want := range map[string]string{
		"mlx/lib/libguidance.so": "", "licences/libguidance/engine-1.0.0-LICENSE-MIT.txt": "MIT of engine\n",
	} {
		data, err := os.ReadFile(f.path("runtime", "cpu", filepath.FromSlash(name)))
		f.must(err)
		if want != "" && string(data) != want {
			t.Fatalf("%s holds %q", name, data)
		}
	}
	texts, err := os.ReadDir(f.path("runtime", "cpu", "licences", "libguidance"))
	f.must(err)
	if len(texts) != 1 { // neither the macro's nor the build tool's
		t.Fatalf("licences: %v", texts)
	}
	data, err := os.ReadFile(f.path("runtime", "cpu", "runtime.json"))
	f.must(err)
	if !strings.Contains(string(data), `"libguidance": "mlx/lib/libguidance.so"`) {
		t.Fatalf("runtime.json: %s", data)
	}
	f.calls()
	_, err = f.run(t.Context())
	f.must(err)
	if got := f.calls(); strings.Contains(got, "cargo") || strings.Contains(got, "rustc") {
		t.Fatalf("the second run called %s", got)
	}
	// A change of the crate makes the library again, and nothing else.
	f.write(filepath.Join(f.root, "native", "guidance", "Cargo.toml"), "[package]\n# changed\n")
	_, err = f.run(t.Context())
	f.must(err)
	if got := f.calls(); !strings.Contains(got, "cargo") || strings.Contains(got, "cmake") {
		t.Fatalf("after a change of the crate it called %s", got)
	}
}

func TestRustThatIsTooOldIsNamedBeforeAnythingStarts(t *testing.T) {
	f := newFixture(t)
	f.withGuidance("rustc 1.63.0 (Debian 12)", "MIT")
	_, err := f.run(t.Context())
	mustContain(t, "run", err, "rustc 1.87 or later is needed", "1.63.0", "rustup update stable")
	if got := f.calls(); strings.Contains(got, "cmake") {
		t.Fatalf("it called %s", got)
	}
	f.script("rustc", "exit 1")
	_, err = f.run(t.Context())
	mustContain(t, "run", err, "rustc is needed and was not found")
}

func TestCrateUnderAnotherLicenceIsRefused(t *testing.T) {
	f := newFixture(t)
	f.withGuidance("rustc 1.95.0 (x)", "GPL-2.0-only")
	_, err := f.run(t.Context())
	mustContain(t, "run", err, "crate engine 1.0.0", `licence "GPL-2.0-only"`)
	for expression, want := range map[string]bool{
		"MIT": true, "MIT/Apache-2.0": true, "Zlib OR Apache-2.0 OR MIT": true, "MIT OR GPL-2.0": true, "(MIT OR Apache-2.0) AND Unicode-3.0": false,
		"MIT AND BSD-3-Clause": true, "": false, "LGPL-2.1": false,
	} {
		if freeLicence(expression) != want {
			t.Errorf("%q: not %v", expression, want)
		}
	}
}

// The library that setup made exports llguidance's whole C interface, and ours: a crate that only depends on llguidance
// exports nothing.
func TestBuiltGuidanceExportsEveryFunction(t *testing.T) {
	root := filepath.Join("..", "..")
	v, err := loadVersions(filepath.Join(root, "native", "versions.json"))
	if err != nil {
		t.Fatal(err)
	}
	cargo, err := os.ReadFile(filepath.Join(root, "native", "guidance", "Cargo.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(cargo), "name = \"llguidance\"\nversion = \"1.9.1\"\n") {
		t.Error("Cargo.lock does not lock llguidance 1.9.1, which sdk/guidance is written for")
	}
	for _, r := range v.Runtimes {
		if r.LibGuidance == "" {
			t.Errorf("%s on %s/%s has no libguidance", r.Variant, r.OS, r.Arch)
		}
	}
	lib := filepath.Join(root, "bin", "runtime", "cpu", "mlx", "lib", "libguidance.so")
	names, err := dynamicSymbols(lib)
	if err != nil {
		t.Fatalf("%v; run make setup", err)
	}
	var llg, own int
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "llg_"):
			llg++
		case strings.HasPrefix(name, "clade_guidance_"):
			own++
		default:
			t.Errorf("%s is exported", name)
		}
	}
	if llg != 51 || own != 2 {
		t.Errorf("%d functions of llguidance and %d of ours, want 51 and 2", llg, own)
	}
	info, err := os.Stat(lib)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 4<<20 {
		t.Errorf("%d bytes: is it stripped?", info.Size())
	}
	if text, err := exec.Command("grep", "-c", "/.cargo/registry", lib).Output(); err == nil {
		t.Errorf("the builder's folders are in it, %s lines", text)
	}
}

// dynamicSymbols lists the functions that a library defines for others.
func dynamicSymbols(lib string) ([]string, error) {
	f, err := elf.Open(lib)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			out = append(out, s.Name)
		}
	}
	return out, nil
}
