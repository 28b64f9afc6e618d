package plugins

import (
	"os"
	"syscall"
)

func identify(info os.FileInfo) (identity, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, false
	}
	return identity{
		Device: uint64(st.Dev), Inode: st.Ino, Size: st.Size, MTime: info.ModTime().UnixNano(), CTime: st.Ctim.Nano(),
	}, true
}
