package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A third party's afternoon: the project is generated, built outside of this repository with the sdk from a file proxy alone, held to
// the contract, and answers.
func TestAFamilyOfYourOwnIsGeneratedBuiltCheckedAndUsed(t *testing.T) {
	dir := t.TempDir()
	proxy, project, modules := filepath.Join(dir, "goproxy"), filepath.Join(dir, "moss"), filepath.Join(dir, "modules")
	tool(t, filepath.Join(repository(), "tools"), []string{"GOWORK=off"}, "go", "run", "./goproxy", "-module", "../sdk", "-version", "v0.1.0", "-out", proxy)
	require.Contains(t, ok(t, "plugin", "new", "moss", "--dir", project, "--sdk-proxy", proxy), "next: cd "+project)

	downloads := strings.TrimSpace(tool(t, dir, nil, "go", "env", "GOMODCACHE")) + "/cache/download"
	env := []string{
		// A module cache of its own: the sdk's version is the same for every build of this tree.
		"GOMODCACHE=" + modules, "GOPROXY=file://" + downloads + "," + strings.TrimSpace(tool(t, dir, nil, "go", "env", "GOPROXY")), "GOFLAGS=",
		"CLADE_RUNTIME=" + built.runtime, "MLX_ROOT=" + filepath.Join(repository(), "bin", "native", "wheel-cpu", "mlx"), "CLADE=" + built.clade,
	}
	t.Cleanup(func() { tool(t, dir, env, "go", "clean", "-modcache") })
	tool(t, project, env, "make", "test")
	report := tool(t, project, env, "make", "check")
	require.Contains(t, report, "moss 0.1.0: ")
	require.Contains(t, report, ", 0 failed, ")

	model, home := filepath.Join(project, "build", "model"), filepath.Join(project, "build")
	exe := filepath.Join(home, "moss", "clade-moss")
	require.NotEmpty(t, ok(t, "run", model, "Hello", "--max-tokens", "8", "--plugin", exe, "--graph", "moss"))
	ok(t, "plugin", "seal", filepath.Join(home, "moss"))
	settings := note(t, "plugins: {dirs: ["+home+"]}")
	require.NotEmpty(t, ok(t, "run", model, "Hello", "--max-tokens", "8", "--config", settings), "installed, it is a family like any other")
	var shown struct {
		Plan struct {
			Kernels []struct {
				Name   string
				Native bool
			}
		}
	}
	jsonOf(t, &shown, "show", model, "--json", "--config", settings)
	native := false
	for _, k := range shown.Plan.Kernels {
		native = native || k.Name == "moss-squared-relu" && k.Native
	}
	require.True(t, native, "the plan runs the plugin's own kernel: %+v", shown.Plan.Kernels)
}

// tool runs a command that must succeed and gives its output.
func tool(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	// The suite's own variables (CLADE_KILLS) are none of the host's, which refuses what it does not know.
	own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CLADE_") })
	cmd.Dir, cmd.Env = dir, append(own, env...)
	cmd.WaitDelay = 10 * time.Second
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s %v: %s\n%s", name, args, out, errs.String())
	return string(out)
}
