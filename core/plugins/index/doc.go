// Package index is index.v1.json: what a source of plugins offers, signed as a whole.
//
// Parties and files: a publisher holds a minisign key and writes index.v1.json with index.v1.json.minisig beside it and the
// archives that it names. A host trusts keys for one source name. The signature covers the index, the index has the digest of
// every archive; nothing else needs a signature, so archives may come from anywhere, and a mirror is a copied folder.
//
// Read judges a downloaded index in this order, and no part of it is used before all hold: a known key, the signature, the
// schema, the source's name, its serial (never lower than one seen before, never the same with another content), its expiry.
// The keys that an accepted index lists are the ones that may sign the next: that is how keys rotate.
//
// Choose picks the version, the archive and the runtime for one machine.
//
// Not for: fetching (core/plugins/source), or remembering keys and serials (core/plugins/trust).
package index
