//go:build linux || darwin

package plugin

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/clademl/clade/sdk/contract"
	"github.com/clademl/clade/sdk/contract/cladev1"
)

// envAct makes the test binary the plugin.
const envAct = "CLADE_TEST_ACT"

func TestMain(m *testing.M) {
	switch os.Getenv(envAct) {
	case "plugin with child":
		c := exec.Command("/bin/sleep", "60")
		if err := c.Start(); err != nil {
			panic(err)
		}
		fmt.Fprintln(os.Stderr, c.Process.Pid)
		Main(Family{Manifest: fakeManifest, Backend: &fake{}})
	case "plugin":
		Main(Family{Manifest: fakeManifest, Backend: &fake{}})
	case "stdout":
		actStdout()
		return
	}
	code := m.Run()
	_ = os.RemoveAll(echoModel())
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// actStdout prints from "C" and from Go once stdout is protected.
func actStdout() {
	if _, err := protectStdout(); err != nil {
		panic(err)
	}
	_, _ = syscall.Write(1, []byte("from C\n"))
	fmt.Println("handshake")
}

func command(t *testing.T, act string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), exe, args...)
	c.Env = append([]string{envAct + "=" + act, "GORACE=atexit_sleep_ms=0"}, env...)
	return c
}

func cookie() []string {
	h := contract.Handshake()
	return []string{h.MagicCookieKey + "=" + h.MagicCookieValue, "PLUGIN_PROTOCOL_VERSIONS=1"}
}

func TestCOutputNeverReachesTheHandshakePipe(t *testing.T) {
	c := command(t, "stdout", nil)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	require.NoError(t, c.Run())
	require.Equal(t, "handshake\n", out.String())
	require.Equal(t, "from C\n", errs.String())
}

func TestStartedByHandItSaysWhatItIs(t *testing.T) {
	c := command(t, "plugin", nil)
	out, err := c.CombinedOutput()
	require.Equal(t, 1, c.ProcessState.ExitCode(), err)
	require.Contains(t, string(out), "clade-echo 0.1.0 is a plugin: clade starts it")

	c = command(t, "plugin", nil, "serve")
	out, _ = c.CombinedOutput()
	require.Equal(t, contract.InvalidArgument.ExitCode(), c.ProcessState.ExitCode())
	require.Contains(t, string(out), `"serve"`)
}

func TestDescribeAnswersWithoutHostAndRuntime(t *testing.T) {
	out, err := command(t, "plugin", nil, "describe", "--json").Output()
	require.NoError(t, err)
	d := &cladev1.DescribeResponse{}
	require.NoError(t, protojson.Unmarshal(out, d))
	require.Equal(t, "echo", d.Name)
	require.Contains(t, d.ManifestJson, "example.org/echo")
	out, err = command(t, "plugin", nil, "describe").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "graph example.org/echo: loaders safetensors, gguf")
	out, err = command(t, "plugin", nil, "version").Output()
	require.NoError(t, err)
	require.Equal(t, "echo 0.1.0\n", string(out))
}

// serving starts the plugin by hand with the cookie and waits for its handshake line.
func serving(t *testing.T, act string, env ...string) (c *exec.Cmd, stdin io.WriteCloser, said *bytes.Buffer) {
	t.Helper()
	c = command(t, act, append(append(cookie(), "PLUGIN_UNIX_SOCKET_DIR="+shortDir(t)), env...))
	stdin, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	said = &bytes.Buffer{}
	stderr, err := c.StderrPipe()
	require.NoError(t, err)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, c.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(line, "1|1|unix|"), line)
	if act == "plugin with child" {
		line, err := bufio.NewReader(stderr).ReadString('\n')
		require.NoError(t, err)
		said.WriteString(line)
	}
	return c, stdin, said
}

func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/tmp", "p")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func ends(t *testing.T, c *exec.Cmd, within time.Duration) *os.ProcessState {
	t.Helper()
	done := make(chan struct{})
	go func() { _ = c.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(within):
		_ = c.Process.Kill()
		<-done
		require.Fail(t, "the plugin lives on")
	}
	return c.ProcessState
}

func TestThePluginAndItsGroupDieWhenTheLivenessPipeEnds(t *testing.T) {
	c, stdin, said := serving(t, "plugin with child", contract.EnvLiveness+"=1")
	child, err := strconv.Atoi(strings.TrimSpace(said.String()))
	require.NoError(t, err)
	require.NoError(t, stdin.Close())
	require.False(t, ends(t, c, time.Second).Success())
	require.Eventually(t, func() bool { return !runs(child) }, 2*time.Second, 10*time.Millisecond)
}

// runs says whether pid does; an orphan that its new parent has not reaped yet does not.
func runs(pid int) bool {
	if data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		return !strings.Contains(string(data), ") Z ")
	}
	return syscall.Kill(pid, 0) == nil
}

func TestSIGINTIsTheHostsAndSIGTERMExitsWell(t *testing.T) {
	c, stdin, _ := serving(t, "plugin")
	require.NoError(t, stdin.Close()) // without CLADE_LIVENESS an EOF means nothing
	require.NoError(t, c.Process.Signal(syscall.SIGINT))
	time.Sleep(200 * time.Millisecond)
	require.NoError(t, c.Process.Signal(syscall.Signal(0)), "SIGINT ended it")
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	require.True(t, ends(t, c, 2*time.Second).Success())
}
