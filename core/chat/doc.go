// Package chat turns a conversation into the text a model was trained on, and a model's text back into an answer.
//
// Template renders a model's chat template as transformers does, character for character. ParseMessages and
// PrepareTools read OpenAI-style JSON and keep the order of its keys, because templates print it. StopFilter ends an answer at a stop
// string wherever the pieces of the stream are cut.
//
// Invariants: a template is data of a model file, so it runs under limits (limits.go, memory.go) and cannot hang the
// host, grow its stack or take its memory; a Template is immutable and safe for concurrent use; a StopFilter gives the same text for every
// way of cutting its input.
//
// A template runs on the jinja library, but its expressions are rewritten to call our functions (expression.go), which compute
// as Python does and within bounds. Known to differ from Python: a tuple prints as a list, whole numbers end at 64 bits, lists and
// mappings can be changed (transformers' sandbox forbids it, other programs' templates do it), a recursive loop is refused.
//
// Not for: turning text into ids (sdk/tokenizer), reading replies (chat/reply, chat/toolcall), media parts: a part
// that is not text is refused by its type.
package chat
