// Package contract is the border between the clade host and a family plugin.
//
// It holds the protocol (proto/clade/v1, generated into cladev1), the go-plugin handshake both sides use, the Kind of an
// error and how it crosses the wire, and the walk that finds fields a side does not know.
//
// Invariants: native-free; field numbers and Kinds are only appended; an option is honoured or refused, never ignored.
// Not for: deciding anything (core) or computing anything (the plugins).
package contract
