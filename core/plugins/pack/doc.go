// Package pack turns a folder into an archive and an archive into a folder.
//
// The archive is a gzip-compressed tar of regular files, sorted by path, without owners or times: the same folder gives the
// same bytes on every machine. Unpack trusts nothing in it but its digest, which the caller has checked.
//
// Invariants of Unpack: nothing is written outside the folder; only regular files and folders are made, links of every kind
// are refused; no name is written twice; no more bytes or files are written than the caller allows; modes are 0444 or 0555.
//
// Not for: knowing what an archive is for (core/plugins/index, core/plugins/install).
package pack
