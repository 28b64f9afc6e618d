// Package family is the record of a model family: the data in a plugin's plugin.yaml by which the host recognises a model,
// reads its config, knows what the family can do and how much its caches take, without any code that names a family.
//
// A Manifest is parsed strictly (unknown keys are refused), holds Records, and has one canonical JSON form. A Record
// matches a config by clauses, says in words which clause failed, and reads the config through its dialect into canonical
// snake_case keys. plugin.schema.json, published beside this file, describes the same thing for editors and for authors in
// other languages.
//
// Invariants: native-free; no code here tests a model_type; ops, derive rules and named values are closed lists; a Record
// is not changed after ParseManifest.
//
// Not for: ordering families or choosing one (core/family), running one (the plugin).
package family
