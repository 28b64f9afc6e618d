// Package guidance holds a generation to a grammar: a JSON schema, any JSON object, a regular expression, a Lark grammar, or a
// choice of texts. It is the binding to llguidance, the runtime's libguidance.
//
// For: sdk/engine. [Open] loads the library by path, [Library.Vocabulary] prepares a model's tokens once, and
// [Vocabulary.Start] compiles one request's [Grammar] into a [Matcher], which is that request's [Constraint]:
//
//	for !m.Done() {
//		m.Mask(bits)           // while the device runs the forward of the token before
//		id := sample(bits)     // among the allowed ids
//		m.Commit(id)
//	}
//
// Invariants:
//   - Every text that the masks allow is in the grammar's language once Accepting says so; an end-of-text id is allowed then
//     and never before. Special tokens (and every end-of-text id) are never taken for the text that they are spelled with.
//   - What llguidance does not hold a generation to is refused when the grammar is compiled, never approximated: an unsupported
//     keyword of a schema by its JSON pointer. Its lenient modes are not reachable.
//   - White space between the tokens of JSON is bounded: a model cannot stay between two tokens for ever.
//   - A Matcher serves one goroutine at a time. A grammar and a caller's ids are untrusted: sizes and nesting are bounded, a panic
//     inside llguidance is an error of that Matcher. There are no finalizers: Close frees.
//   - The state is a function of the grammar and of the ids committed, so a request that is resumed in another process commits
//     its generated ids again from the first one.
//
// Not for: deciding what a grammar is for (core/generate, core/serve), tool calls' formats (core/chat), picking tokens
// (sdk/engine).
package guidance
