// Package reply splits what a model writes into its reasoning, its answer and its calls of tools, while it is written.
//
// Pieces go in, as tokens are decoded: text, or a marker that is one special token of the vocabulary. Parts come out, in order.
// Where a marker is a special token, only the token counts: text that spells it is text. Other markers are found in the text,
// wherever it is cut, and what could still become one is held back.
//
// A call comes out whole, when it has been read: at every part that a client gets, the arguments it has are valid JSON. A call that
// cannot be read, or of a tool that was not offered, comes out as the text that it is, with a Problem that says why.
//
// Invariants: the parts do not depend on how the text was cut; without reasoning and calls the answer is the text itself, byte for
// byte; every byte of a call that could not be read is in the answer. A Reader serves one goroutine.
//
// Not for: what a call's text says (core/chat/toolcall), stop strings (core/chat), decoding ids (sdk/tokenizer).
package reply
