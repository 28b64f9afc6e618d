package artifact

import (
	"os"
	"syscall"
)

func statOf(info os.FileInfo) (fileStat, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileStat{}, false
	}
	return fileStat{Device: uint64(st.Dev), Inode: st.Ino, Size: st.Size, MTime: info.ModTime().UnixNano(), CTime: st.Ctimespec.Nano()}, true
}
