// Package prefix keeps what earlier requests computed of the beginnings of their texts, so that a text that begins the same
// way is not computed again.
//
// A Cache is a trie over runs of tokens. Each run carries a payload, the keys and values of its tokens in every layer, made
// only for runs that are not there yet. A run may be divided where two texts part: both halves share the payload.
//
// Invariants:
//   - what Lookup returns belongs to exactly the tokens that were asked for, in order, from the first on: nothing behind a
//     changed token is ever used;
//   - the payloads that are held never sum to more than the budget, also while they are being used;
//   - a payload is closed once, when no run and no reader needs it;
//   - namespaces share nothing. What else two requests must have in common (artifact, graph, kernels, dtype, scheme) is one
//     engine's by construction, and part of the Identity of a Disk.
//
// A Disk keeps payloads beyond the process. Its key is a hash of the identity and of all tokens up to the run's end, its files
// are checked before use, and a damaged one is removed.
//
// Not for: what a payload is (sdk/kv), when to look and to store (sdk/engine).
package prefix
