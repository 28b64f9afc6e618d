// Package chat turns a conversation into the text a model was trained on, and a model's text back into an answer.
//
// Template renders a model's chat template as transformers does, character for character. ParseMessages and ParseTools
// read OpenAI-style JSON and keep the order of its keys, because templates print it. StopFilter ends an answer at a stop
// string wherever the pieces of the stream are cut.
//
// Invariants: a template is data of a model file, so it runs under limits (limits.go) and cannot hang the host or grow
// its stack without end; a Template is immutable and safe for concurrent use; a StopFilter gives the same text for every
// way of cutting its input.
//
// Known to differ from Python, because the jinja library decides it: a tuple prints as a list, ** gives a float, None
// joined to a string by ~ or + is empty (Python writes "None" or raises), and an attribute of something undefined is
// undefined (jinja2 raises). No published template in the goldens depends on these.
//
// Not for: turning text into ids (sdk/tokenizer), tool-call and reasoning parsers, media parts: these come with their own
// issues, and a part that is not text is refused by its type until then.
package chat
