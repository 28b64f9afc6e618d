// Package tokenizer turns text into token ids and back, equal id for id to Hugging Face `tokenizers`.
//
// A Tokenizer is built from a tokenizer.json (FromJSON), from GGUF metadata (FromGGUF) or from whichever of the two an
// opened artifact carries (FromArtifact). Encoding walks the pipeline of tokenizer.json: added tokens are cut out, the rest
// is normalized, pre-tokenized into words, each word goes through the model (BPE, Unigram, WordPiece or WordLevel), and the
// post-processor adds what the model expects around a text.
//
// Invariants: a Tokenizer is immutable and safe for concurrent use; a component or field that is not implemented is
// refused by name, never skipped; encoding is O(n log n) in the text whatever the text is; Stream gives, in pieces, exactly
// the text that Decode gives at once, and never half a character.
//
// Text that is not UTF-8 is read as a Python decoder with errors="replace" reads it: one U+FFFD for each maximal invalid
// part. Encode does not apply the truncation and padding sections of tokenizer.json, as transformers does not apply them
// either unless a call asks for it (they are checked all the same, and padding names the pad_token where nothing else does);
// nor clean_up_tokenization_spaces, which belongs to transformers and not to `tokenizers`. Nor do add_bos_token and
// add_eos_token of tokenizer_config.json count beside a tokenizer.json, whose post-processor decides.
//
// Special tokens have the names that transformers 5 gives them from tokenizer_config.json and special_tokens_map.json, and
// are cut out of texts like added tokens, but for those that the vocabulary does not have: transformers would number them
// behind it, where the model has no rows.
//
// Refused: BPE dropout (ids would depend on chance), a Regex in a Replace decoder, and in patterns what only Oniguruma has
// (classes within classes, \K, \X, named groups).
//
// Not for: rendering chat templates (core/chat).
package tokenizer
