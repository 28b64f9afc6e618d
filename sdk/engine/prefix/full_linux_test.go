package prefix

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// fullFolder makes the test binary a writer whose files cannot grow beyond 64 KiB, as on a disk that is full.
const fullFolder = "CLADE_TEST_PREFIX_FULL"

func init() {
	dir := os.Getenv(fullFolder)
	if dir == "" {
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // the write fails in its place
	limit := syscall.Rlimit{Cur: 64 << 10, Max: 64 << 10}
	d, err := OpenDisk(dir, 1<<30)
	if err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot begin:", err)
		os.Exit(3)
	}
	if err := d.Put(Named("large"), Stored{End: 1}, make([]byte, 1<<20)); err == nil {
		fmt.Fprintln(os.Stderr, "a write that does not fit went well")
		os.Exit(4)
	}
	if err := d.Put(Named("small"), Stored{End: 1}, []byte("fits")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(5)
	}
	os.Exit(0)
}

func TestAWriteThatFailsInTheMiddleLeavesNothingAndTheNextGoesWell(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "prefix")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fullFolder+"="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	files, err := list(dir, func(path string) { require.Fail(t, "left behind: "+path) })
	require.NoError(t, err)
	require.Len(t, files, 1)
	d, err := OpenDisk(dir, 1<<30)
	require.NoError(t, err)
	_, body, ok := d.Get(Named("small"))
	require.True(t, ok)
	require.Equal(t, "fits", string(body))
}
