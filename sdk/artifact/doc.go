// Package artifact reads what a model file says about itself: its config, its tensors' names, types, shapes and byte
// ranges, and the small files beside it. Formats: safetensors directories, GGUF files, Colibri directories.
//
// Invariants: only headers and small files are read at Open; every length, count, offset and shape of a file is treated
// as hostile until it is checked against the file's own size; tensor bytes are reachable only through ReadAt, which stays
// inside the range that the header's checks proved; descriptors opened at Open stay open until Close, so that the bytes
// read later belong to the file that was checked. Native-free.
//
// Not for: deciding which family takes a model (sdk/family), meaning of a field (the family's record), text (sdk/tokenizer).
//
// Every refusal is a *contract.Error of Kind ArtifactCorrupt whose subject is "file: tensor" or "file: field", or NotFound
// when something is not there.
package artifact
