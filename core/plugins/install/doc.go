// Package install brings plugins and the runtimes they need from trusted sources into the store, and takes them out again.
//
// An installation: Refresh fetches a source's index and judges it; Propose chooses version, archive and runtime and says what
// would happen; Install takes the store's lock, refuses conflicts, downloads, unpacks into a staging folder, compares manifest,
// index and what the binary says of itself, and lets the folder appear; then the record, the lock file, and what is no longer
// needed goes.
//
// Invariants: nothing is asked of a source that is not trusted; nothing from an archive runs before its digest was the one of a
// signed index; a failure at any step leaves what was installed before as it was.
//
// Not for: running plugins (core/supervise), asking people (core/cli).
package install
