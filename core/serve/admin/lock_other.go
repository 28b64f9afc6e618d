//go:build !unix

package admin

import "os"

// lock is the open file itself: plugins, and so servers with open models, do not run here.
func lock(*os.File) error { return nil }

func locked(*os.File) bool { return true }
