// Package store keeps what was installed: immutable folders named after the SHA-256 of the archive they came from.
//
//	<store>/sha256-<hex>/    an unpacked plugin or runtime and its receipt.json
//	<store>/installed.json   which plugin is which folder, with its runtime and its source
//	<store>/sources/<name>/  the last index of a source and what is remembered of it (core/plugins/trust)
//	<store>/tmp/             downloads and unpackings under way, on the same volume
//	<store>/use/<hex>        locked, shared, by every process that runs a folder
//	<store>/lock             locked by who changes the store
//
// Invariants: a folder appears by one rename, complete and synced, or not at all, and never changes afterwards; installed.json
// is replaced whole; whoever takes the lock sweeps what a killed process left in tmp; a folder that a running process holds is
// not removed. Reading needs no lock.
//
// Not for: what is in a folder (core/plugins), where it comes from (core/plugins/install).
package store
