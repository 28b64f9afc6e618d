//go:build linux || darwin

package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clademl/clade/sdk/contract"
)

func supported() error { return nil }

// killGroup kills the process group that pid leads.
func killGroup(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }

// ending words the way a process ended. killed: by a SIGKILL, which nobody sends to a plugin but this package, that keeps its own
// reason, the kernel for memory, or a person.
func ending(ps *os.ProcessState) (text string, killed bool) {
	if ps == nil {
		return "ended", false
	}
	ws, ok := ps.Sys().(syscall.WaitStatus)
	if !ok || !ws.Signaled() {
		return fmt.Sprintf("exited with code %d", ps.ExitCode()), false
	}
	if ws.Signal() == syscall.SIGKILL {
		return "was killed", true
	}
	return fmt.Sprintf("died of %s", unix.SignalName(ws.Signal())), false
}

// A socket address holds 104 bytes on macOS and 108 on Linux, its final zero included. Below the base go: our own folder,
// go-plugin's, and the socket's name.
const (
	maxSocketPath = 103
	belowBase     = len("/p4294967295/plugin-dir4294967295/plugin4294967295")
	// A folder is somebody's leftover when nobody holds its lock and it is older than this.
	staleAfter = time.Minute
)

// privateDir makes a folder that only this user can enter, with a path short enough for a socket below it, and holds its lock
// until release. Folders that dead hosts left are removed on the way.
func privateDir() (dir string, release func(), err error) {
	base, err := baseDir(os.Getenv("XDG_RUNTIME_DIR"), os.Getuid())
	if err != nil {
		return "", nil, err
	}
	sweep(base)
	if dir, err = os.MkdirTemp(base, "p"); err != nil {
		return "", nil, contract.Errorf(contract.Internal, base, "%w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, contract.Errorf(contract.Internal, dir, "lock: %w", err)
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}, nil
}

// baseDir is <runtime>/clade when the session has a usable runtime directory, else /tmp/clade-<uid>; never TMPDIR, which may
// be too long for a socket.
func baseDir(runtimeDir string, uid int) (string, error) {
	base := "/tmp/clade-" + strconv.Itoa(uid)
	if filepath.IsAbs(runtimeDir) && private(runtimeDir, uid) == nil && fits(runtimeDir+"/clade") {
		base = runtimeDir + "/clade"
	}
	if err := os.Mkdir(base, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", contract.Errorf(contract.Internal, base, "no private directory for sockets: %w", err)
	}
	if err := private(base, uid); err != nil {
		return "", contract.Errorf(contract.PluginUntrusted, base, "%w", err).
			WithNext("remove it, or set XDG_RUNTIME_DIR to a private directory")
	}
	if !fits(base) {
		return "", contract.Errorf(contract.Internal, base, "is too long for a socket path of %d bytes", maxSocketPath)
	}
	return base, nil
}

func fits(base string) bool { return len(base)+belowBase <= maxSocketPath }

// private checks that dir is a directory of uid's that nobody else may enter.
func private(dir string, uid int) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("is not a directory")
	case int(st.Uid) != uid:
		return fmt.Errorf("belongs to user %d, not to you (%d)", st.Uid, uid)
	case st.Mode&0o077 != 0:
		return fmt.Errorf("is open to others (mode %#o)", st.Mode&0o777)
	}
	return nil
}

// sweep removes the folders of hosts that were killed. A live host holds its folder's lock.
func sweep(base string) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		dir := filepath.Join(base, e.Name())
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
