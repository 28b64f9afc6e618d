// Package e2e tests the whole path: the built command line, a built plugin, the native runtime and real checkpoints, seen
// only from outside. It holds nothing but tests.
//
// They need a C compiler and the runtime of `make setup` (bin/runtime/cpu, or CLADE_RUNTIME), and fail by saying so. The
// tests with SmolLM2 (tag full) need what `make demo` brings. Not for: rules of one package, which its own tests hold.
package e2e
