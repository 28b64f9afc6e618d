// Package cli is the command line: one file a verb, over the host's packages.
//
// What scripts may rely on: stdout carries the result alone (`run` prints exactly the answer and a newline; --json prints
// one JSON value), everything else goes to stderr; an error is one line "clade: ..." on stderr and the exit code of its
// Kind; Ctrl-C and SIGTERM cancel with 130. A flag that a verb does not honour is not one of its flags, or is refused by
// name; a verb that comes later says with which version.
//
// Invariants: nothing heavy happens before the verb runs, so that `clade version` starts at once. Not for: deciding
// anything; a verb reads flags, calls the host and prints.
package cli
