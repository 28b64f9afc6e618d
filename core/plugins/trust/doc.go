// Package trust knows which sources of plugins a host trusts: a name, where the source is, and the keys that may sign its index.
//
// Two files: trust.json beside the configuration is what a person decided (`clade plugin trust add`); <store>/sources/<name>/ is
// what was seen since: the last accepted index with its signature, its serial, and the keys that it handed the signing to. A
// build of the host may carry roots of its own (ROOTS of `make release`); no other source is trusted by default.
//
// Invariants: nothing is trusted on first sight: a key comes from a person or from the build; an accepted index is remembered, so
// that an older one is refused afterwards; the keys of an accepted index replace those before it.
package trust
