//go:build linux || darwin

package install

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	corefamily "github.com/clademl/clade/core/family"
	"github.com/clademl/clade/sdk/contract"
)

// installAndDie installs echo and is killed at a step.
func installAndDie(step, work string) {
	m := managerIn(work)
	m.Offers, _ = corefamily.Embedded()
	m.Store.Fault = func(at string) error {
		if at == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	p, err := m.Propose(context.Background(), "example.org/echo", "")
	if err == nil {
		_, err = m.Install(context.Background(), p)
	}
	println("not killed:", err)
}

// steps are the names of every step of an installation, or of an update, in their order.
func steps(t *testing.T, b *bench) []string {
	t.Helper()
	var out []string
	seen := map[string]bool{}
	b.Store.Fault = func(step string) error {
		if !seen[step] {
			seen[step] = true
			out = append(out, step)
		}
		return nil
	}
	require.NoError(t, b.try())
	b.Store.Fault = nil
	return out
}

func TestAProcessKilledAtAnyStepLeavesAWholeStore(t *testing.T) {
	names := steps(t, published(t))
	require.Greater(t, len(names), 8)
	self, err := os.Executable()
	require.NoError(t, err)
	for _, step := range names {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			b := published(t)
			killed(t, self, b.work, step)
			b.whole()
			require.NoError(t, b.try())
			b.works()
		})
	}
}

// A killed update leaves the old version or the new one, never none.
func TestAnUpdateKilledAtAnyStepLeavesAVersionThatWorks(t *testing.T) {
	names := steps(t, published(t))
	self, err := os.Executable()
	require.NoError(t, err)
	for _, step := range names {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			b := published(t)
			require.NoError(t, b.try())
			b.publish(b.plugin(edited(manifestText, "0.1.0", "0.2.0")))
			killed(t, self, b.work, step)
			b.whole()
			_, err := b.set().Find("echo")
			require.NoError(t, err)
			require.NoError(t, b.try())
			b.works()
		})
	}
}

func TestADeviceWithoutSpaceLeavesAWholeStore(t *testing.T) {
	for _, step := range steps(t, published(t)) {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			b := published(t)
			b.Store.Fault = func(at string) error {
				if at == step {
					return &os.PathError{Op: "write", Path: at, Err: syscall.ENOSPC}
				}
				return nil
			}
			err := b.try()
			require.Error(t, err)
			require.NotEqual(t, contract.PluginUntrusted, contract.KindOf(err), "the publisher is not at fault: %v", err)
			require.ErrorContains(t, err, "no space")
			b.whole()
			b.Store.Fault = nil
			require.NoError(t, b.try())
			b.works()
		})
	}
}

// whole says that everything which is there is complete.
func (b *bench) whole() {
	b.t.Helper()
	set := b.set()
	require.Empty(b.t, set.Problems)
	for _, dir := range b.left("sha256-*") {
		found, err := filepath.Glob(filepath.Join(dir, "r*.json")) // receipt.json or runtime.json
		require.NoError(b.t, err)
		require.NotEmpty(b.t, found, dir)
	}
}

// killed runs an installation in another process, which dies at a step.
func killed(t *testing.T, self, work, step string) {
	t.Helper()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envKill+"="+step, envWork+"="+work)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, -1, exit.ExitCode(), "it ended by itself: %s", out)
}
