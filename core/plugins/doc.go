// Package plugins finds the plugins that are installed and decides whether one may be started.
//
// A plugin is a folder with plugin.yaml (its manifest), clade-<name> (its executable) and receipt.json, which states the SHA-256
// of every file. Discover reads the folders <dir>/<name>/ of builds, AddStore what was installed: its runtime, a folder with
// runtime.json, is found with it. Verify hashes the files, or trusts a hash of the same inode, size and times, right before
// the executable is started; CheckDescribe compares what the running plugin says with its manifest. Seal writes the receipt.
//
// Invariants: a plugin whose files others may write, or whose digests differ from its receipt, is never started; one broken
// folder hides no other plugin and is reported by name; the first place that has a name wins: configured folders, plugins/ beside
// the executable, the store.
//
// Below it: pack (archives), index (what a source offers, signed), source (where from), trust (whose), store (where to), install
// (all of these together), publish (the other side).
//
// Not for: running plugins (core/supervise).
package plugins
