//go:build linux

package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRuntimeIsMadeOnceAndThenLeftAlone(t *testing.T) {
	f := newFixture(t)
	_, err := f.run(t.Context())
	f.must(err)
	if got := f.calls(); got != "pkg-config pkg-config python3 python3 python3 cargo cmake cmake" {
		t.Fatalf("first run called %q", got)
	}
	var rec record
	data, err := os.ReadFile(f.path("runtime", "cpu", "runtime.json"))
	f.must(err)
	f.must(json.Unmarshal(data, &rec))
	var names []string
	for _, file := range rec.Files {
		names = append(names, file.Path)
	}
	if got := strings.Join(names, " "); got != "licences/MLX.txt licences/README.txt mlx/lib/libmlx.so mlx/lib/libmlxc.so mlx_cpu.libs/libblas.so.3" {
		t.Fatalf("runtime holds %s", got)
	}
	out, err := f.run(t.Context())
	f.must(err)
	if calls := f.calls(); out != "" || strings.Contains(calls, "python3") || strings.Contains(calls, "cmake") {
		t.Fatalf("second run printed %q and called %q", out, calls)
	}
}

func TestDamagedRuntimeIsMadeAgainWithoutDownloadOrBuild(t *testing.T) {
	f := newFixture(t)
	_, err := f.run(t.Context())
	f.must(err)
	f.calls()
	f.write(f.path("runtime", "cpu", "mlx", "lib", "libmlx.so"), "damaged")
	out, err := f.run(t.Context())
	f.must(err)
	if calls := f.calls(); !strings.Contains(out, "mlx/lib/libmlx.so is missing or changed") || strings.Contains(calls, "python3") || strings.Contains(calls, "cmake") {
		t.Fatalf("printed %q, called %q", out, calls)
	}
	sum, _, err := fileDigest(f.path("runtime", "cpu", "mlx", "lib", "libmlx.so"))
	f.must(err)
	want, _, err := fileDigest(f.path("native", "wheel-cpu", "mlx", "lib", "libmlx.so"))
	f.must(err)
	if sum != want {
		t.Fatal("the damaged library is still there")
	}
}

func TestDownloadWithAnotherDigestIsNotUsed(t *testing.T) {
	f := newFixture(t)
	f.write(filepath.Join(f.root, "pip.whl"), "another file")
	_, err := f.run(t.Context())
	mustContain(t, "run", err, "mlx.whl: digest mismatch", f.v.Runtimes[0].Wheels[0].SHA256, textDigest("another file"))
	if left, _ := filepath.Glob(f.path("native", "wheels", "*")); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
}

func TestSourceWithAnotherDigestIsNotUsed(t *testing.T) {
	f := newFixture(t)
	f.v.MLXC.TreeSHA256 = strings.Repeat("0", 64)
	f.save()
	_, err := f.run(t.Context())
	mustContain(t, "run", err, "crate mlx-sys 0.6.0", "digest mismatch", "not used")
}

func TestUnpinnedDigestIsRefusedBeforeAnyDownload(t *testing.T) {
	f := newFixture(t)
	for _, digest := range []string{"", "unpinned", "abc"} {
		f.v.Runtimes[0].Wheels[0].SHA256 = digest
		f.save()
		_, err := f.run(t.Context())
		mustContain(t, digest, err, "mlx.whl: no sha256 is pinned", "refused")
		if calls := f.calls(); strings.Contains(calls, "python3") {
			t.Fatalf("%q: called %s", digest, calls)
		}
	}
}

func TestInterruptedDownloadIsDoneAgain(t *testing.T) {
	f := newFixture(t)
	good, err := os.ReadFile(filepath.Join(f.bin, "python3"))
	f.must(err)
	f.script("python3", `case "$*" in *--version*) exit 0;; esac
while [ "$1" != --dest ]; do shift; done
head -c 100 "$FIXTURE/pip.whl" > "$2/mlx.whl"; echo 'connection reset'; exit 1`)
	out, err := f.run(t.Context())
	mustContain(t, "interrupted", err, "python3 -m pip download", "exit status 1")
	if !strings.Contains(out, "connection reset") {
		t.Fatalf("pip's own words are not shown: %q", out)
	}
	f.write(filepath.Join(f.bin, "python3"), string(good))
	_, err = f.run(t.Context())
	f.must(err)
}

// A run is killed in its download and in its build; each time the next one finishes the work.
func TestKilledRunIsRunAgain(t *testing.T) {
	for _, victim := range []string{"python3", "cmake"} {
		t.Run(victim, func(t *testing.T) {
			f := newFixture(t)
			good, err := os.ReadFile(filepath.Join(f.bin, victim))
			f.must(err)
			f.script(victim, `case "$*" in *--version*) exit 0;; esac
touch "$FIXTURE/at-work"; exec sleep 60`)
			cmd := exec.Command(os.Args[0], "-root", f.root, "runtime")
			cmd.Env = append(os.Environ(), "SETUP_TEST_MAIN=1")
			f.must(cmd.Start())
			for range 500 {
				if _, err := os.Stat(filepath.Join(f.root, "at-work")); err == nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			f.must(cmd.Process.Kill())
			if cmd.Wait() == nil {
				t.Fatal("it ended before it was killed")
			}
			f.write(filepath.Join(f.bin, victim), string(good))
			_, err = f.run(t.Context())
			f.must(err)
			_, err = os.Stat(f.path("runtime", "cpu", "runtime.json"))
			f.must(err)
		})
	}
}

func TestCancelledRunStopsItsChildren(t *testing.T) {
	f := newFixture(t)
	f.script("cargo", `sh -c 'echo $$ > "$FIXTURE/pid"; sleep 60'`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := f.run(ctx); done <- err }()
	pid := ""
	for range 500 {
		if data, err := os.ReadFile(filepath.Join(f.root, "pid")); err == nil && len(data) > 0 {
			pid = strings.TrimSpace(string(data))
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	mustContain(t, "cancelled", <-done, "cargo: stopped", "again")
	for range 200 {
		// A zombie whose parent was killed too is gone once init has read its status.
		if state, err := os.ReadFile("/proc/" + pid + "/stat"); err != nil || strings.Contains(string(state), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("grandchild %s is alive", pid)
}

func TestEveryMissingPrerequisiteIsNamedOnALineOfItsOwn(t *testing.T) {
	f := newFixture(t)
	t.Setenv("PATH", t.TempDir())
	_, err := f.run(t.Context())
	mustContain(t, "run", err)
	lines := strings.Split(err.Error(), "\n")
	want := map[string]string{
		"python3": "python3 python3-pip", "cargo": "cargo", "cmake": "cmake", "make": "make", "cc": "gcc", "c++": "g++",
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%v", len(lines), len(want), err)
	}
	for name, pkg := range want {
		if line := name + " is needed and was not found: on Debian: apt-get install " + pkg; !strings.Contains("\n"+err.Error()+"\n", "\n"+line+"\n") {
			t.Fatalf("no line %q in:\n%v", line, err)
		}
	}
}

func TestPythonWithoutPipIsNamed(t *testing.T) {
	f := newFixture(t)
	f.script("python3", `echo "No module named pip" >&2; exit 1`)
	_, err := f.run(t.Context())
	mustContain(t, "run", err, "pip (python3 -m pip) is needed", "apt-get install python3-pip")
}

func TestFinishedRuntimeNeedsNoPrerequisite(t *testing.T) {
	f := newFixture(t)
	_, err := f.run(t.Context())
	f.must(err)
	t.Setenv("PATH", t.TempDir())
	_, err = f.run(t.Context())
	f.must(err)
}

func TestSecondSetupWaitsForTheFirst(t *testing.T) {
	f := newFixture(t)
	f.must(os.MkdirAll(f.path("native"), 0o755))
	release, err := lock(t.Context(), f.path("native", "lock"), func(string) { t.Error("nobody to wait for") })
	f.must(err)
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	go func() { out, err := f.run(t.Context()); done <- result{out, err} }()
	select {
	case r := <-done:
		t.Fatalf("it did not wait: %v", r)
	case <-time.After(300 * time.Millisecond):
	}
	release()
	r := <-done
	f.must(r.err)
	if !strings.Contains(r.out, "another setup (process ") {
		t.Fatalf("it waited in silence: %q", r.out)
	}
}

func TestLibraryWithAnotherSearchPathIsRefused(t *testing.T) {
	f := newFixture(t)
	for _, path := range []string{"/opt/mlx/lib", "$ORIGIN:/opt/mlx/lib"} {
		f.setRunpath(path)
		_, err := f.run(t.Context())
		mustContain(t, path, err, "its RUNPATH is", path, `want exactly "$ORIGIN"`)
	}
}

func TestArchiveEntryOutsideItsFolderIsRefused(t *testing.T) {
	for _, name := range []string{"../evil", "/etc/evil", "a/../../evil"} {
		path := filepath.Join(t.TempDir(), "a.whl")
		if err := os.WriteFile(path, zipOf(t, map[string][]byte{name: []byte("x")}), 0o644); err != nil {
			t.Fatal(err)
		}
		mustContain(t, name, unzip(path, t.TempDir(), nil), "leaves the folder")
	}
}

func TestPackageGivesItsNamedFilesOnly(t *testing.T) {
	f := newFixture(t)
	f.v.Packages = []packageSpec{
		{Use: "demo", Wheel: f.v.Runtimes[0].Wheels[0], Take: map[string]string{"mlx/include/mlx/mlx.h": "mlx.h"}},
		{Use: "gone", Wheel: f.v.Runtimes[0].Wheels[0], Take: map[string]string{"nowhere": "x"}},
		{Use: "other", OS: "plan9", Arch: "amd64"},
	}
	f.save()
	s, err := newSetup(f.root, os.Stderr)
	f.must(err)
	dest := t.TempDir()
	f.must(s.unpack(t.Context(), "demo", dest))
	f.calls()
	f.must(s.unpack(t.Context(), "demo", dest))
	if got := f.calls(); got != "" {
		t.Fatalf("the second call ran %s", got)
	}
	left, err := filepath.Glob(filepath.Join(dest, "[^.]*"))
	f.must(err)
	if len(left) != 1 || filepath.Base(left[0]) != "mlx.h" {
		t.Fatalf("dest holds %v", left)
	}
	mustContain(t, "gone", s.unpack(t.Context(), "gone", dest), "1 of the wanted files are not in it")
	mustContain(t, "other", s.unpack(t.Context(), "other", dest), "nothing pinned for")
	mustContain(t, "unknown", s.unpack(t.Context(), "unknown", dest), "not in native/versions.json")
}

// The committed pins are complete: every wheel of every platform, and the same crate as cargo's lock file.
func TestCommittedVersionsArePinned(t *testing.T) {
	v, err := loadVersions(filepath.Join("..", "versions.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range v.Runtimes {
		for _, w := range r.Wheels {
			if err := w.pinned(); err != nil {
				t.Error(err)
			}
		}
		if r.Wheels[0].Version != v.MLX {
			t.Errorf("%s on %s/%s is MLX %s, not %s", r.Variant, r.OS, r.Arch, r.Wheels[0].Version, v.MLX)
		}
	}
	for _, p := range v.Packages {
		if err := p.Wheel.pinned(); err != nil {
			t.Error(err)
		}
	}
	cargo, err := os.ReadFile(filepath.Join("..", "mlxc-source", "Cargo.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(cargo), "name = \""+v.MLXC.Crate+"\"\nversion = \""+v.MLXC.CrateVersion+"\"\n") {
		t.Errorf("Cargo.lock does not lock %s %s", v.MLXC.Crate, v.MLXC.CrateVersion)
	}
}
