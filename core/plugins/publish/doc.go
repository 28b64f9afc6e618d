// Package publish makes a source of plugins: a folder with a signed index and the archives that it names, ready to be copied to
// a web server or pushed to a registry.
//
// Invariants: a published version is not replaced by another content unless the caller says so; the serial only grows, also when
// the folder was made anew; an archive holds the licences of what is in it; a throwaway key signs only an index that says so.
//
// Not for: building plugins, or trusting a source (core/plugins/trust).
package publish
