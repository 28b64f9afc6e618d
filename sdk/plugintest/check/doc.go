// Package check is the conformance suite of the contract: it drives a plugin binary, in any language, the way a host does and
// says what of the contract it keeps.
//
// A plugin is tested on what it declares: its families' loops, its RPCs, its options. What it does not declare must be refused
// by name, and that is tested too. Checks that need a model are run on the one that the caller gives.
//
// The client here is its own, not go-plugin's: it sees the handshake line, the certificate, both output streams and the exit
// of the process as they are. Order: the process alone; what it says of itself; plans; opening; answers; options; rows,
// resumption and the prefix cache; memory; the ends of a process. One process with an open model serves most checks; a check
// that ends or spoils one starts its own.
//
// Invariants: native-free, no import of testing, so that the host can run it; every process that is started is ended; files of
// the model are only read (damaged copies are sparse). Not for: fidelity of a model's output, which an oracle decides.
package check
