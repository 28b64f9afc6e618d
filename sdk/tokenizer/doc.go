// Package tokenizer turns text into token ids and back, equal id for id to Hugging Face `tokenizers`.
//
// A Tokenizer is built from a tokenizer.json (FromJSON), from GGUF metadata (FromGGUF) or from whichever of the two an
// opened artifact carries (FromArtifact). Encoding walks the pipeline of tokenizer.json: added tokens are cut out, the rest
// is normalized, pre-tokenized into words, each word goes through byte-pair merging, and the post-processor adds what the
// model expects around a text.
//
// Invariants: a Tokenizer is immutable and safe for concurrent use; a component or field that is not implemented is
// refused by name, never skipped; encoding is O(n log n) in the text whatever the text is; Stream gives, in pieces, exactly
// the text that Decode gives at once.
//
// Text that is not UTF-8 is read as a Python decoder with errors="replace" reads it: one U+FFFD for each maximal invalid
// part. The truncation and padding sections of tokenizer.json are not applied, as transformers does not apply them either
// unless a call asks for it; neither is clean_up_tokenization_spaces, which belongs to transformers and not to `tokenizers`.
//
// Not for: rendering chat templates (core/chat) and WordPiece, Unigram or SentencePiece models, which are refused by name.
package tokenizer
