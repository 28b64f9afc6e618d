// Package family is the host's list of model families: which there are, in what order they are asked, which one takes a
// model, and what to say when none does.
//
// The list is data. Manifests come from three sources, strongest first: installed and verified plugins, the signed index,
// and the first-party manifests embedded in the host, so that it can name and offer what is not there yet. Within a source
// nothing is preferred; a plugin known from a stronger source replaces the same plugin from a weaker one.
//
// Order: first-party targeted families by their rank, then third-party targeted families by graph id, then generic ones.
// The first record whose clauses all hold wins. Drafts (assistants and *_mtp heads) are sorted out before any record is
// asked.
//
// Invariants: no code here names a family; a List does not change once built; a conflict disables the later third-party
// record and is reported, never resolved in silence.
//
// Not for: reading records (sdk/family), installing plugins, choosing profiles.
package family

//go:generate go run ./copymanifests
