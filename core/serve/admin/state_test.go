package admin

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStateFilesOfDeadServersAreRemovedAndOfLiveOnesKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "serve")
	list, err := List(dir)
	require.NoError(t, err)
	require.Empty(t, list, "no folder is no server")

	now := time.Now()
	second, err := Publish(dir, State{Pid: 2, URL: "http://127.0.0.1:2", Token: "t2", Started: now.Add(time.Second)})
	require.NoError(t, err)
	first, err := Publish(dir, State{Pid: 1, URL: "http://127.0.0.1:1", Token: "t1", Started: now})
	require.NoError(t, err)
	defer first()
	for name, text := range map[string]string{"3.json": `{"pid":3,"url":"http://127.0.0.1:3","token":"t"}`, "4.json": "{"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) // nobody holds their locks
	}
	list, err = List(dir)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []int{1, 2}, []int{list[0].Pid, list[1].Pid}, "the oldest first")
	require.NoFileExists(t, filepath.Join(dir, "3.json"))
	require.NoFileExists(t, filepath.Join(dir, "4.json"))
	info, err := os.Stat(filepath.Join(dir, "1.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	folder, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), folder.Mode().Perm())

	second()
	list, err = List(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing else is left behind")
}

func TestDirIsTheSessionsOrTheUsers(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	dir, err := Dir()
	require.NoError(t, err)
	require.Equal(t, "/run/user/7/clade/serve", dir)
	t.Setenv("XDG_RUNTIME_DIR", "relative")
	t.Setenv("HOME", "/home/x")
	dir, err = Dir()
	require.NoError(t, err)
	require.Equal(t, "/home/x/.local/state/clade/serve", dir)
}
