// Package toolcall reads the calls that a model writes into its answer: what is between the markers of its format.
//
// Each Syntax is one way to write calls: JSON (Hermes and Llama), Qwen's XML, GLM's pairs, MiniCPM5's XML with CDATA, Gemma's
// call:, Mistral's, and Python's. Detect chooses those of a model by its sentinels and the text of its template. Tools are what
// the client offered; their schemas decide whether a value that is written without quotes is a text.
//
// A call is read strictly first. Only if that fails, repairs are tried in a fixed order, each of them is recorded on the call,
// and what no repair helps is an error that says why: the caller keeps the text.
//
// Invariants: the arguments of a Call are a JSON object whose keys stand as the model wrote them; a name that was not offered is
// an error; no input panics, and reading is linear in it but for the few repairs.
//
// Not for: finding the calls in a stream (core/chat/reply).
package toolcall
