package rules

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/clademl/clade/"

// goCmd runs the go command in the workspace, whatever this module's own run was set to.
func goCmd(t *testing.T, env []string, args ...string) string {
	t.Helper()
	work, err := filepath.Abs(filepath.Join(root, "go.work"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), append(env, "GOWORK="+work)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s (%s): %v\n%s", strings.Join(args, " "), strings.Join(env, " "), err, stderr.String())
	}
	return string(out)
}

// packages returns the packages of patterns, or those they depend on too, one per line of a template.
func packages(t *testing.T, deps bool, template string, patterns ...string) []string {
	args := []string{"list", "-f", template}
	if deps {
		args = append(args, "-deps")
	}
	// With CGO_ENABLED=0 the build tags would hide a package's cgo files behind a stub.
	var lines []string
	for _, line := range strings.Split(goCmd(t, []string{"CGO_ENABLED=1"}, append(args, patterns...)...), "\n") {
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// nativeFree are the rooms of sdk that the host is built from.
var nativeFree = []string{"contract", "artifact", "tokenizer", "family", "plugin", "plugintest"}

func nativeFreePatterns(t *testing.T) []string {
	patterns := []string{"./core/..."}
	for _, room := range nativeFree {
		if _, err := os.Stat(filepath.Join(root, "sdk", room)); err != nil {
			t.Errorf("sdk/%s is not there: %v", room, err)
			continue
		}
		patterns = append(patterns, "./sdk/"+room+"/...")
	}
	return patterns
}

// The rule of docs/architecture.md: the host computes nothing and links nothing native.
func TestHostAndNativeFreeSDKHaveNoCgoInTheirClosure(t *testing.T) {
	const cgoFiles = `{{if and .CgoFiles (not .Standard)}}{{.ImportPath}}{{end}}`
	if bad := packages(t, true, cgoFiles, nativeFreePatterns(t)...); len(bad) > 0 {
		t.Errorf("cgo in the closure of core or the native-free sdk: %s", strings.Join(bad, ", "))
	}
	// The same question about the binding has to find it, or the question is wrong.
	if found := packages(t, true, cgoFiles, "./sdk/mlx"); !slices.Contains(found, module+"sdk/mlx") {
		t.Errorf("the check is blind: it finds no cgo in sdk/mlx: %v", found)
	}
}

func TestHostCrossCompilesWithoutCgo(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			goCmd(t, []string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=arm64"}, "build", "-o", os.DevNull, "./core/cmd/clade")
			goCmd(t, []string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=arm64"}, "build", "./core/...")
		})
	}
}

func TestPluginsAndSDKNeverImportTheHost(t *testing.T) {
	for _, path := range packages(t, true, "{{.ImportPath}}", "./sdk/...", "./plugins/gemma4/...", "./plugins/glm52/...",
		"./plugins/qwen/...", "./plugins/universal/...", "./plugins/whisper/...") {
		if strings.HasPrefix(path, module+"core") {
			t.Errorf("%s is in the closure of a plugin or of sdk", path)
		}
	}
}

// cgo is for the bindings to the runtime's libraries, and what computes with them.
func TestCgoFilesStandOnlyWhereTheyBelong(t *testing.T) {
	for _, path := range packages(t, false, "{{if .CgoFiles}}{{.ImportPath}}{{end}}", "./core/...", "./sdk/...") {
		if !slices.Contains([]string{module + "sdk/mlx", module + "sdk/kernels", module + "sdk/guidance"}, path) {
			t.Errorf("%s has cgo files", path)
		}
	}
}
