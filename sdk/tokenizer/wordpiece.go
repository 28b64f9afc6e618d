package tokenizer

import "unicode/utf8"

// wordPiece is BERT's model: the longest token that a word begins with, then the longest that goes on, spelled with prefix;
// a word that cannot be spelled so is unknown as a whole.
type wordPiece struct {
	tree     *prefixTree
	inside   int32 // the node behind prefix, -1 when no token has it
	maxChars int
	unk      int32 // -1: none
}

func newWordPiece(v *vocab, prefix string, maxChars int, unk int32) *wordPiece {
	m := &wordPiece{tree: newPrefixTree(len(v.ids)), maxChars: maxChars, unk: unk}
	for token, id := range v.ids {
		m.tree.add(token, id)
	}
	m.inside = m.tree.walk(0, prefix)
	return m
}

func (m *wordPiece) encode(dst []int32, _ *work, word string) ([]int32, error) {
	n := len(dst)
	if len(word) > m.maxChars && utf8.RuneCountInString(word) > m.maxChars {
		return m.unknown(dst)
	}
	node := int32(0)
	for at := 0; at < len(word); node = m.inside {
		id, end := int32(-1), at
		for i := at; i < len(word) && node >= 0; i++ {
			if node = m.tree.step(node, word[i]); node >= 0 && m.tree.ids[node] >= 0 {
				id, end = m.tree.ids[node], i+1
			}
		}
		if id < 0 {
			return m.unknown(dst[:n])
		}
		dst, at = append(dst, id), end
	}
	return dst, nil
}

func (m *wordPiece) unknown(dst []int32) ([]int32, error) {
	if m.unk < 0 {
		return dst, missingUnk(at("model.unk_token"))
	}
	return append(dst, m.unk), nil
}

// wordLevel gives each word the id of the token that it is.
type wordLevel struct {
	vocab *vocab
	unk   int32 // -1: none
}

func (m wordLevel) encode(dst []int32, _ *work, word string) ([]int32, error) {
	if id, ok := m.vocab.ids[word]; ok {
		return append(dst, id), nil
	}
	if m.unk < 0 {
		return dst, missingUnk(at("model.unk_token"))
	}
	return append(dst, m.unk), nil
}
