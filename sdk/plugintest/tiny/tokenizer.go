package tiny

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// The byte tokenizer's vocabulary: the bytes, <end> and <pad>.
const (
	ByteVocab = 258
	ByteEnd   = 256
)

// WriteByteTokenizer writes a tokenizer.json whose ids are bytes, for models that only have to run. More special tokens follow from
// ByteVocab on.
func WriteByteTokenizer(dir string, special ...string) error {
	data, err := json.MarshalIndent(byteTokenizer(special), "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "tokenizer.json"), data, 0o644)
}

// byteTokenizer is a byte-level tokenizer.json without merges: the id of a byte is the byte.
func byteTokenizer(special []string) map[string]any {
	vocab := map[string]int{"<end>": ByteEnd, "<pad>": ByteEnd + 1}
	for b, r := range byteAlphabet() {
		vocab[string(r)] = b
	}
	added := func(id int, text string) map[string]any {
		return map[string]any{
			"id": id, "content": text, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
		}
	}
	tokens := []any{added(ByteEnd, "<end>"), added(ByteEnd+1, "<pad>")}
	for i, text := range special {
		vocab[text] = ByteVocab + i
		tokens = append(tokens, added(ByteVocab+i, text))
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	return map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "normalizer": nil, "post_processor": nil,
		"added_tokens": tokens, "pre_tokenizer": level, "decoder": level,
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []any{},
		},
	}
}

// byteAlphabet is GPT-2's: how a byte-level vocabulary spells each byte. Those that do not print stand at 256 and up.
func byteAlphabet() [256]rune {
	var out [256]rune
	next := rune(256)
	for b := range out {
		out[b] = rune(b)
		if b <= ' ' || b >= 0x7f && b <= 0xa0 || b == 0xad {
			out[b] = next
			next++
		}
	}
	return out
}
