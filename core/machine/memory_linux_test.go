package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMemoryIsKnownHere(t *testing.T) {
	total, available := Memory()
	require.NotZero(t, total)
	require.NotZero(t, available)
	require.LessOrEqual(t, available, total)
}

// fake lays out a machine of 8 GiB with 6 GiB available, with the given files under cgroup/.
func fake(t *testing.T, self string, files map[string]string) system {
	t.Helper()
	root := t.TempDir()
	s := system{filepath.Join(root, "proc"), filepath.Join(root, "cgroup")}
	put := func(path, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	put(filepath.Join(s.proc, "meminfo"), "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 6291456 kB\n")
	put(filepath.Join(s.proc, "vmstat"), "pgfault 9\noom_kill 4\n")
	put(filepath.Join(s.proc, "self", "cgroup"), self)
	for name, text := range files {
		put(filepath.Join(s.cgroup, name), text)
	}
	return s
}

func TestMemoryIsTheSmallestLimitOfTheGroups(t *testing.T) {
	const gib = uint64(1) << 30
	for _, c := range []struct {
		name, self       string
		files            map[string]string
		total, available uint64
		kills            uint64
	}{
		{"no limit", "0::/\n", nil, 8 * gib, 6 * gib, 4},
		{"version 2, a parent limits, file cache is free", "0::/a/b\n", map[string]string{
			"a/b/memory.max": "max\n", "a/memory.max": "2147483648\n", "a/memory.current": "1610612736\n",
			"a/memory.stat": "anon 5\ninactive_file 536870912\n", "a/b/memory.events": "low 0\noom 3\noom_kill 2\n",
		}, 2 * gib, gib, 2},
		{"version 1 listed after an empty version 2", "0::/\n5:cpu,memory:/x\n", map[string]string{
			"memory/x/memory.limit_in_bytes": "4294967296\n", "memory/x/memory.usage_in_bytes": "1073741824\n",
			"memory/x/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n",
		}, 4 * gib, 3 * gib, 7},
		{"a container sees its group as the root", "0::/docker/1234\n", map[string]string{
			"memory.max": "1073741824\n", "memory.current": "0\n",
		}, gib, gib, 4},
		{"version 1's word for none", "4:memory:/\n", map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 8 * gib, 6 * gib, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := fake(t, c.self, c.files)
			total, available := s.memory()
			require.Equal(t, c.total, total)
			require.Equal(t, c.available, available)
			kills, ok := s.oomKills()
			require.True(t, ok)
			require.Equal(t, c.kills, kills)
		})
	}
}
