// Package rules holds the repository's rules as tests: what no compiler checks and a reader should be able to rely on.
//
// They run over the tracked and the not yet tracked files of the work tree, whatever module they belong to. Not for:
// rules about one package, which stand beside it.
package rules
