package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/core/plugins/source/registrytest"
	"github.com/clademl/clade/sdk/plugintest/echo"
)

// publisher makes, once, a source with universal and the runtime, signed with a throwaway key.
var publisher = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(built.root, "publisher")
	plugin := filepath.Join(dir, "built", "universal")
	if err := os.CopyFS(plugin, os.DirFS(filepath.Join(built.root, "plugins", "universal"))); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(plugin, "LICENSE"), []byte("Apache-2.0\n"), 0o600); err != nil {
		return "", err
	}
	return dir, publish(dir, "clade", plugin, built.runtime)
})

// publish adds folders to the source dir/source of a publisher.
func publish(dir, name string, folders ...string) error {
	args := append([]string{"plugin", "publish", filepath.Join(dir, "source"), "--name", name, "--throwaway", "--key", filepath.Join(dir, "sign.key")}, folders...)
	out, err := exec.Command(built.clade, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// person is somebody who has the host alone: nothing installed, no runtime, an empty home.
type person struct {
	t        *testing.T
	exe, dir string
	env      []string
}

func newPerson(t *testing.T) *person {
	t.Helper()
	dir := t.TempDir()
	p := &person{t: t, dir: dir, exe: filepath.Join(dir, "bin", "clade")}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	require.NoError(t, os.Link(built.clade, p.exe)) // no plugins lie beside this one
	p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir()}
	return p
}

// clade runs a command line; in is what stdin has.
func (p *person) clade(args ...string) result {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.exe, args...)
	cmd.Env = p.env
	cmd.WaitDelay = 10 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // its exit code is looked at
	require.NoError(p.t, ctx.Err(), errs.String())
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

func (p *person) ok(args ...string) string {
	p.t.Helper()
	r := p.clade(args...)
	require.Equal(p.t, 0, r.code, "%v: %s", args, r.errors)
	return r.out
}

// trusts makes the person trust the publisher's key, for a location.
func (p *person) trusts(name, dir, location string) {
	p.t.Helper()
	p.ok("plugin", "trust", "add", name, filepath.Join(dir, "sign.pub"), location)
}

// store lists what is in the person's store.
func (p *person) store() []string {
	found, err := filepath.Glob(filepath.Join(p.dir, ".local", "share", "clade", "store", "sha256-*"))
	require.NoError(p.t, err)
	return found
}

// terminal runs a command line in a pseudo-terminal, types a line when it is asked to install, and gives all that was shown.
func (p *person) terminal(typed string, args ...string) (string, int) {
	p.t.Helper()
	cmd := exec.Command(p.exe, args...)
	cmd.Env = append(p.env, "TERM=xterm")
	screen, err := pty.Start(cmd)
	require.NoError(p.t, err)
	defer func() { _ = screen.Close() }()
	timeout := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timeout.Stop()
	var shown strings.Builder
	for buf, answered := make([]byte, 4096), false; ; {
		n, err := screen.Read(buf)
		shown.Write(buf[:n])
		if !answered && strings.Contains(shown.String(), "Install it?") {
			answered = true
			_, err := io.WriteString(screen, typed+"\n")
			require.NoError(p.t, err)
		}
		if err != nil { // EIO: the other side is gone
			break
		}
	}
	_ = cmd.Wait() // its exit code is looked at
	return shown.String(), cmd.ProcessState.ExitCode()
}

func TestAPersonIsAskedAndTheModelAnswers(t *testing.T) {
	dir, err := publisher()
	require.NoError(t, err)
	p := newPerson(t)
	p.trusts("clade", dir, filepath.Join(dir, "source"))
	ask := []string{"run", talker(t), "Hello", "--max-tokens", "8", "--ignore-eos"}

	shown, code := p.terminal("n", ask...)
	require.Equal(t, 6, code, shown)
	require.Contains(t, shown, "clade plugin install universal")
	require.Empty(t, p.store())

	shown, code = p.terminal("y", ask...)
	require.Equal(t, 0, code, shown)
	for _, fact := range []string{"universal 0.1.0", "MiB", "runtime  cpu, MLX 0.32.2", "source   clade (" + dir + "/source)", "signed with key "} {
		require.Contains(t, shown, fact)
	}
	require.Len(t, p.store(), 2)
	require.NotEmpty(t, strings.TrimSpace(p.ok(ask...)))
}

func TestAScriptIsToldTheCommandAndAServerAnswers503WithIt(t *testing.T) {
	dir, err := publisher()
	require.NoError(t, err)
	p := newPerson(t)
	model := talker(t)
	r := p.clade("run", model, "Hello")
	require.Equal(t, 6, r.code)
	require.Contains(t, r.errors, "no source of plugins is trusted; add one with `clade plugin trust add NAME KEY LOCATION`")
	p.trusts("clade", dir, filepath.Join(dir, "source"))
	r = p.clade("run", model, "Hello")
	require.Equal(t, 6, r.code)
	require.Equal(t, 1, strings.Count(r.errors, "\n"))
	require.Contains(t, r.errors, "the plugin is not installed; clade plugin install universal\n")
	require.Contains(t, p.ok("plugin", "install", "universal"), "installed universal 0.1.0 from clade")
	require.Equal(t, 0, p.clade("plugin", "verify").code)
	p.ok("plugin", "remove", "universal")

	s := p.serve(model, "--lazy")
	status, body := s.ask("Hello", 4)
	require.Equal(t, 503, status, body)
	require.Contains(t, body, "clade plugin install universal")
	require.Contains(t, body, "plugin_missing")
	p.ok("plugin", "install", "universal")
	status, body = s.ask("Hello", 4)
	require.Equal(t, 200, status, "what was installed meanwhile is used: %s", body)
}

func TestAlwaysInstallsWithoutAQuestion(t *testing.T) {
	dir, err := publisher()
	require.NoError(t, err)
	p := newPerson(t)
	p.trusts("clade", dir, filepath.Join(dir, "source"))
	p.env = append(p.env, "CLADE_PLUGINS_AUTO_INSTALL=always")
	r := p.clade("run", talker(t), "Hello", "--max-tokens", "8", "--ignore-eos")
	require.Equal(t, 0, r.code, r.errors)
	require.Contains(t, r.errors, "universal 0.1.0")
	require.NotEmpty(t, strings.TrimSpace(r.out))
	p.env = append(p.env, "CLADE_PLUGINS_AUTO_INSTALL=never")
	p.ok("plugin", "remove", "universal")
	shown, code := p.terminal("y", "run", talker(t), "Hello")
	require.Equal(t, 6, code, shown)
	require.NotContains(t, shown, "Install it?")
}

func TestARegistryAndABundleInstallTheSame(t *testing.T) {
	dir, err := publisher()
	require.NoError(t, err)
	locations := []string{"oci://" + registrytest.New(t) + "/clade/plugins"}
	if debian, ok := registrytest.Debian(t); ok {
		locations = append(locations, "oci://"+debian+"/clade/plugins")
	}
	ask := []string{"run", talker(t), "Hello", "--max-tokens", "8", "--ignore-eos"}
	var near *person
	for _, at := range locations {
		out, err := exec.Command(built.clade, "plugin", "publish", filepath.Join(dir, "source"), "--throwaway", "--key", filepath.Join(dir, "sign.key"), "--push", at).CombinedOutput()
		require.NoError(t, err, "%s", out)
		near = newPerson(t)
		near.trusts("clade", dir, at)
		near.env = append(near.env, "CLADE_PLUGINS_AUTO_INSTALL=always")
		require.NotEmpty(t, strings.TrimSpace(near.ok(ask...)))
	}

	bundle := filepath.Join(t.TempDir(), "b.tar")
	near.ok("plugin", "bundle", bundle, "universal")
	far := newPerson(t)
	r := far.clade("plugin", "install", bundle)
	require.Equal(t, 6, r.code)
	require.Contains(t, r.errors, "is no trusted source of plugins")
	far.ok("plugin", "trust", "add", "clade", filepath.Join(dir, "sign.pub"))
	far.ok("plugin", "install", bundle)
	require.NotEmpty(t, strings.TrimSpace(far.ok(ask...)))
	require.Equal(t, 0, far.clade("plugin", "verify").code)
}

// echoes publishes versions of the echo family as example.org, one after the other.
type echoes struct {
	t   *testing.T
	dir string
}

func newEchoes(t *testing.T, version string) *echoes {
	e := &echoes{t, t.TempDir()}
	e.publish(version)
	return e
}

func (e *echoes) publish(version string) {
	e.t.Helper()
	folder := filepath.Join(built.root, "echo-"+version, "echo") // each version is built once
	if _, err := os.Stat(folder); err != nil {
		require.NoError(e.t, echo.Build(folder, version))
		require.NoError(e.t, os.WriteFile(filepath.Join(folder, "LICENSE"), []byte("Apache-2.0\n"), 0o600))
	}
	require.NoError(e.t, publish(e.dir, "example.org", folder))
}

func TestAFamilyThatOnlyTheIndexKnowsInstallsOnDemand(t *testing.T) {
	e := newEchoes(t, "0.1.0")
	p := newPerson(t)
	model := filepath.Join(t.TempDir(), "parrot")
	require.NoError(t, echo.WriteModel(model, echo.Shape{}))
	r := p.clade("run", model, "Hello")
	require.Equal(t, 3, r.code, r.errors)
	p.trusts("example.org", e.dir, filepath.Join(e.dir, "source"))
	r = p.clade("run", model, "Hello")
	require.Equal(t, 6, r.code, r.errors)
	require.Contains(t, r.errors, "clade plugin install example.org/echo")
	var families []map[string]any
	require.NoError(t, json.Unmarshal([]byte(p.ok("families", "--json")), &families))
	shown, code := p.terminal("y", "run", model, "Hello", "--max-tokens", "16", "--ignore-eos")
	require.Equal(t, 0, code, shown)
	require.Contains(t, shown, "plugin   example.org/echo 0.1.0")
	p.ok("run", model, "Hello", "--max-tokens", "16", "--ignore-eos")
	require.Contains(t, p.ok("plugin", "list"), "example.org")
}
