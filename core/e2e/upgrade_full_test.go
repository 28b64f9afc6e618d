//go:build full

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Another build of universal arrives while a real model answers.
func TestEightStreamsOfSmolLM2LiveThroughAHotUpgrade(t *testing.T) {
	dir := t.TempDir()
	p := newPerson(t)
	plugin := filepath.Join(dir, "built", "universal")
	require.NoError(t, os.CopyFS(plugin, os.DirFS(filepath.Join(built.root, "plugins", "universal"))))
	require.NoError(t, os.WriteFile(filepath.Join(plugin, "LICENSE"), []byte("Apache-2.0\n"), 0o600))
	require.NoError(t, publish(dir, "clade", plugin, built.runtime))
	p.trusts("clade", dir, filepath.Join(dir, "source"))
	p.ok("plugin", "install", "universal")
	// The same program in another archive: what changes is the plugin's folder, which is what an update is to a server.
	require.NoError(t, os.WriteFile(filepath.Join(plugin, "LICENSE"), []byte("Apache-2.0, again\n"), 0o600))
	require.NoError(t, publish(dir, "clade", "--replace", plugin))
	// Room for two processes of the model, and for one: the caches of eight rows of 1,024 tokens are 360 MiB of each.
	for _, budget := range []string{"4GiB", "800MiB"} {
		t.Run(budget, func(t *testing.T) {
			s := p.serve(smollm2(t), "--memory-budget", budget, "--context", "1024")
			folder := p.store()
			s.through(t, 8, 48, func() { require.Contains(t, p.ok("plugin", "update"), "another build of it") }, "universal 0.1.0")
			require.NotEqual(t, folder, p.store())
			require.True(t, strings.Contains(s.logged(), "plugin updated"), s.logged())
		})
		p.ok("plugin", "remove", "universal")
		require.NoError(t, os.WriteFile(filepath.Join(plugin, "LICENSE"), []byte("Apache-2.0\n"), 0o600))
		require.NoError(t, publish(dir, "clade", "--replace", plugin))
		p.ok("plugin", "install", "universal")
		require.NoError(t, os.WriteFile(filepath.Join(plugin, "LICENSE"), []byte("Apache-2.0, "+budget+"\n"), 0o600))
		require.NoError(t, publish(dir, "clade", "--replace", plugin))
	}
}
