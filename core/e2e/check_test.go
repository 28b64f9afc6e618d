package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/clademl/clade/sdk/plugintest/check"
)

// Plugins run the whole suite in their own tests, on tiny models of each loader; here all have to describe themselves, and to refuse
// by name what they only announce.
func TestEveryPluginOfThisRepositoryKeepsTheContract(t *testing.T) {
	folders, err := os.ReadDir(filepath.Join(repository(), "plugins"))
	require.NoError(t, err)
	for _, f := range folders {
		t.Run(f.Name(), func(t *testing.T) {
			var r check.Report
			jsonOf(t, &r, "plugin", "check", filepath.Join(repository(), "bin", "plugins", f.Name(), "clade-"+f.Name()), "--json")
			require.Equal(t, f.Name(), r.Plugin)
			require.True(t, r.OK())
			want := check.Undeclared
			manifest, err := os.ReadFile(filepath.Join(repository(), "plugins", f.Name(), "plugin.yaml"))
			require.NoError(t, err)
			if bytes.Contains(manifest, []byte("status: announced")) {
				want = check.Passed
			}
			require.Equal(t, want, statusOf(t, r, "announced"))
		})
	}
}

func statusOf(t *testing.T, r check.Report, name string) check.Status {
	t.Helper()
	i := slices.IndexFunc(r.Results, func(x check.Result) bool { return x.Name == name })
	require.GreaterOrEqual(t, i, 0, "no check %s", name)
	return r.Results[i].Status
}

func TestWhatIsNoPluginFailsTheCheckWithATextAndExit1(t *testing.T) {
	got := clade(t, "plugin", "check", "/bin/true")
	require.Equal(t, 1, got.code, got.errors)
	require.Contains(t, got.out, "ended (exit status 0) before it printed a handshake line")
	require.Contains(t, got.errors, "checks failed")

	got = clade(t, "plugin", "check", "/bin/true", "--only", "nonsense")
	require.Equal(t, 2, got.code, got.errors)
	require.Contains(t, got.errors, "nonsense: no such check; there are handshake, versions")

	var list []struct{ Name, Fact string }
	require.NoError(t, json.Unmarshal([]byte(ok(t, "plugin", "check", "--list", "--json")), &list))
	require.Greater(t, len(list), 40)
}
