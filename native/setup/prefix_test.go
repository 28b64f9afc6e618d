//go:build linux

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const (
	usesMLX   = "int " + mangled + "(void); int mlx_add(void) { return " + mangled + "(); }"
	usesOther = "int _ZN3mlx4core7removedEv(void); int mlx_add(void) { return _ZN3mlx4core7removedEv(); }"
	usesNone  = "int mlx_add(void) { return 0; }"
)

func TestInstalledMLXCOfThePinnedVersionIsUsed(t *testing.T) {
	f := newFixture(t)
	prefix := f.prefix("0.6.0", usesMLX)
	t.Setenv("CLADE_MLXC_DIR", prefix)
	_, err := f.run(t.Context())
	f.must(err)
	if calls := f.calls(); strings.Contains(calls, "cargo") || strings.Contains(calls, "cmake") {
		t.Fatalf("it was built all the same: %s", calls)
	}
	got, _, err := fileDigest(f.path("runtime", "cpu", "mlx", "lib", "libmlxc.so"))
	f.must(err)
	want, _, err := fileDigest(prefix + "/lib/libmlxc.so")
	f.must(err)
	if got != want {
		t.Fatal("the runtime holds another libmlxc")
	}
	data, err := os.ReadFile(f.path("runtime", "cpu", "runtime.json"))
	f.must(err)
	if !strings.Contains(string(data), prefix+"/lib/libmlxc.so") {
		t.Fatal("runtime.json does not say where libmlxc is from")
	}

	// Without it the pinned one is built: the two are different runtimes.
	t.Setenv("CLADE_MLXC_DIR", "")
	_, err = f.run(t.Context())
	f.must(err)
	if calls := f.calls(); !strings.Contains(calls, "cmake") {
		t.Fatalf("the runtime of the installed mlx-c was kept: %s", calls)
	}
}

func TestInstalledMLXCThatDoesNotFitIsRefused(t *testing.T) {
	f := newFixture(t)
	for name, c := range map[string]struct{ prefix, want string }{
		"version":     {f.prefix("0.7.0", usesMLX), "mlx-c is 0.7.0, and 0.6.0 is needed"},
		"another MLX": {f.prefix("0.6.0", usesOther), "built against another MLX: 1 symbols are not in libmlx.so, the first is _ZN3mlx4core7removedEv"},
		"static":      {f.prefix("0.6.0", usesNone), "brings an MLX of its own"},
		"no library":  {t.TempDir(), "there is no libmlxc.so in"},
	} {
		t.Setenv("CLADE_MLXC_DIR", c.prefix)
		_, err := f.run(t.Context())
		mustContain(t, name, err, c.want)
	}
}

func TestMLXCFoundByPkgConfigIsASuggestion(t *testing.T) {
	f := newFixture(t)
	for _, prefix := range []string{f.prefix("0.5.0", usesMLX), f.prefix("0.6.0", usesOther)} {
		f.script("pkg-config", "echo "+prefix)
		f.must(os.RemoveAll(f.path()))
		out, err := f.run(t.Context())
		f.must(err)
		if !strings.Contains(out, "the installed mlx-c is not used") || !strings.Contains(f.calls(), "cmake") {
			t.Fatalf("printed %q", out)
		}
		_, err = f.run(t.Context())
		f.must(err)
		if calls := f.calls(); strings.Contains(calls, "cmake") {
			t.Fatalf("the second run built again: %s", calls)
		}
	}

	g := newFixture(t)
	g.script("pkg-config", "echo "+g.prefix("0.6.0", usesMLX))
	_, err := g.run(t.Context())
	g.must(err)
	if calls := g.calls(); strings.Contains(calls, "cmake") {
		t.Fatalf("the installed one was not used: %s", calls)
	}
}

// A clone may lie in "My Projects": the flag passes a shell whole.
func TestAFolderWithSpacesPassesTheBuildsShellWhole(t *testing.T) {
	out, err := exec.Command("sh", "-c", "printf '%s|' "+prefixMap("/My Projects/clade ü", "mlx")+" "+prefixMap("/b", "kernels")).Output()
	if want := "-ffile-prefix-map=/My Projects/clade ü=mlx|-ffile-prefix-map=/b=kernels|"; err != nil || string(out) != want {
		t.Fatalf("%s (%v), want %s", out, err, want)
	}
}
