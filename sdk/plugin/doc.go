// Package plugin is all that a family plugin's main needs: it serves the contract to the host that started it.
//
// What a plugin's author writes is a Family (data) and, unless the family is only announced, a Backend and its Model (the
// arithmetic). The package does the rest, in this order:
//
//  1. Main reads the manifest. `PLUGIN describe [--json]` and `PLUGIN version` answer at once and need neither a host nor
//     a runtime. Started by hand otherwise, it says what it is and exits 1.
//  2. The pipe that go-plugin's handshake line travels on moves to a private descriptor, and descriptor 1 becomes a copy
//     of 2: what C libraries print never reaches the handshake.
//  3. When CLADE_LIVENESS is set, stdin is the host's liveness pipe: at EOF the process group dies at once. SIGINT is the
//     host's affair and is ignored; SIGTERM frees the model and exits 0.
//  4. Every message is checked before a Backend sees it: a field that this build does not know, and an option that the
//     Family does not declare, is UnsupportedOption naming it.
//  5. The runtime in CLADE_RUNTIME is loaded at the first Plan or Open, once; its failure is remembered.
//  6. Open asserts graph, profile, loader, loop and plan again. One process holds at most one model.
//  7. Generate and Score run Model calls with heartbeats; tokens leave in one message when the host is slow.
//
// Invariants: no cgo; no option is ignored; a panic in a Backend or Model is an Internal error of that call, not the
// process's end. Not for: arithmetic (sdk/engine), starting plugins (core/supervise).
package plugin
