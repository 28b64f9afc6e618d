// Package plugins finds the plugins that are installed and decides whether one may be started.
//
// A plugin is a folder <dir>/<name>/ with plugin.yaml (its manifest), clade-<name> (its executable) and receipt.json, which
// states the SHA-256 of both. Discover reads manifests and receipts; Verify hashes the executable, or trusts a hash of the
// same inode, size and times, right before it is started; CheckDescribe compares what the running plugin says with its
// manifest. WriteReceipt makes the receipt of a folder that was just built.
//
// Invariants: a plugin whose files others may write, or whose digests differ from its receipt, is never started; one broken
// folder hides no other plugin and is reported by name; the first directory that holds a name wins.
//
// Not for: obtaining plugins, signatures and trust in their sources (they come with the store), or running them
// (core/supervise).
package plugins
