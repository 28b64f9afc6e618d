package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/plugintest/tiny"
)

// built is the layout of bin/ in a temporary folder: clade and the plugins that the tests run.
var built struct{ root, clade, runtime string }

// repository is found from this file's place, so that tests run from anywhere.
func repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "clade-e2e-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return m.Run()
}

type buildStep struct {
	cgo  string
	args []string
}

func build(dir string) error {
	built.root, built.clade = dir, filepath.Join(dir, "clade")
	built.runtime = os.Getenv("CLADE_RUNTIME")
	if built.runtime == "" {
		built.runtime = filepath.Join(repository(), "bin", "runtime", "cpu")
	}
	if _, err := os.Stat(filepath.Join(built.runtime, "runtime.json")); err != nil {
		return fmt.Errorf("no runtime: %w; run make setup", err)
	}
	steps := []buildStep{{"0", []string{"go", "build", "-trimpath", "-o", built.clade, "./core/cmd/clade"}}}
	for _, name := range []string{"universal", "qwen"} {
		plugin := filepath.Join(dir, "plugins", name)
		manifest, err := os.ReadFile(filepath.Join(repository(), "plugins", name, "plugin.yaml"))
		if err != nil {
			return err
		}
		if err := os.MkdirAll(plugin, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(plugin, "plugin.yaml"), manifest, 0o600); err != nil {
			return err
		}
		steps = append(steps,
			buildStep{"1", []string{"go", "build", "-trimpath", "-o", filepath.Join(plugin, "clade-"+name), "./plugins/" + name}},
			buildStep{"0", []string{built.clade, "plugin", "seal", plugin}})
	}
	for _, step := range steps {
		cmd := exec.Command(step.args[0], step.args[1:]...)
		cmd.Dir, cmd.Env = repository(), append(os.Environ(), "CGO_ENABLED="+step.cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", step.args, err, out)
		}
	}
	return nil
}

// result is one finished command line.
type result struct {
	code        int
	out, errors string
}

// environ is a clean one: no configuration, models or caches of the person who runs the tests.
func environ(t *testing.T) []string {
	home := t.TempDir()
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_CACHE_HOME=" + filepath.Join(built.root, "cache"),
		"TMPDIR=" + os.TempDir(), "CLADE_RUNTIME=" + built.runtime, "GOMAXPROCS=" + os.Getenv("GOMAXPROCS"), // empty: the machine's
	}
}

// command is a command line that was not started.
func command(t *testing.T, ctx context.Context, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(ctx, built.clade, args...)
	cmd.Env = environ(t)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// clade runs a command line to its end.
func clade(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := command(t, ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "clade %v took too long: %s", args, errs.String())
	if cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// ok runs a command line that must succeed and returns its output.
func ok(t *testing.T, args ...string) string {
	t.Helper()
	r := clade(t, args...)
	require.Equal(t, 0, r.code, "clade %v: %s", args, r.errors)
	return r.out
}

// jsonOf runs a command line that must print JSON into v.
func jsonOf(t *testing.T, v any, args ...string) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(ok(t, args...)), v))
}

// checkpoint writes one tiny checkpoint; edit may change its config.
func checkpoint(t *testing.T, name string, edit ...func(config map[string]any)) string {
	t.Helper()
	found := tiny.Llama(name)
	require.Len(t, found, 1, "tiny checkpoints named %s", name)
	for _, e := range edit {
		e(found[0].Config)
	}
	path, err := found[0].Write(t.TempDir())
	require.NoError(t, err)
	return path
}

func write(t *testing.T, path string, v any) string {
	t.Helper()
	data, isText := v.(string)
	if !isText {
		j, err := json.Marshal(v)
		require.NoError(t, err)
		data = string(j)
	}
	require.NoError(t, os.WriteFile(path, []byte(data), 0o600))
	return path
}
