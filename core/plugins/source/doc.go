// Package source brings an index and archives from where a publisher put them: a folder, a web server, an OCI registry, or a
// bundle that was carried over.
//
//	/srv/plugins, file:///srv/plugins   a folder
//	https://example.org/plugins         a web server (http only on this machine)
//	oci://registry.example.org/plugins  an OCI registry; :TAG names another artifact than index-v1
//	plugins.tar                         a bundle, as `clade plugin bundle` writes it
//
// Download resumes what was begun, retries what a network loses, gives up on a server that sends nothing, and ends with a file
// whose size and SHA-256 are the announced ones, or with no file.
//
// Invariants: nothing here is trusted; a folder's urls cannot leave it; no more bytes are kept than were announced.
// Not for: signatures (core/plugins/index) or unpacking (core/plugins/pack).
package source
