//go:build !linux && !darwin

package plugins

import "os"

// identify knows no identity here: every start hashes.
func identify(os.FileInfo) (identity, bool) { return identity{}, false }
