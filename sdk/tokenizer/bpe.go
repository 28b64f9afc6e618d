package tokenizer

import (
	"unicode/utf8"
)

// bpe is the byte-pair model: a vocabulary and ranked merges.
type bpe struct {
	ids    map[string]int32
	tokens []string // by id; "" where no token has the id
	merges mergeTable

	unk          int32 // -1: none
	fuseUnk      bool
	byteFallback bool
	ignoreMerges bool
	fallback     [256]int32 // ids of <0x00>..<0xFF>, -1 where absent; read only with byteFallback

	// byteLevel says that words arrive as raw bytes and that the vocabulary is spelled with byteRunes.
	byteLevel bool
	byteIDs   [256]int32 // id of each byte's character, -1 where absent

	cache *wordCache
}

// prepare fills the tables derived from the vocabulary.
func (m *bpe) prepare(byteLevel bool) {
	m.byteLevel = byteLevel
	for b := range 256 {
		m.byteIDs[b] = m.id(string(byteRunes[b]))
		m.fallback[b] = m.id(byteToken(byte(b)))
	}
	m.cache = newWordCache()
}

const hexDigits = "0123456789ABCDEF"

// byteToken is the name of the token that stands for b under byte_fallback.
func byteToken(b byte) string {
	return "<0x" + string(hexDigits[b>>4]) + string(hexDigits[b&15]) + ">"
}

func (m *bpe) id(token string) int32 {
	if id, ok := m.ids[token]; ok {
		return id
	}
	return -1
}

// encode appends the ids of one word.
func (m *bpe) encode(dst []int32, w *work, word string) []int32 {
	if ids, ok := m.cache.get(word); ok {
		return append(dst, ids...)
	}
	n := len(dst)
	dst = m.encodeWord(dst, w, word)
	m.cache.put(word, dst[n:])
	return dst
}

func (m *bpe) encodeWord(dst []int32, w *work, word string) []int32 {
	if m.ignoreMerges {
		if id, ok := m.whole(w, word); ok {
			return append(dst, id)
		}
	}
	w.symbols = w.symbols[:0]
	if m.byteLevel {
		m.byteSymbols(w, word)
	} else {
		m.runeSymbols(w, word)
	}
	w.merge(&m.merges)
	for i := int32(0); i >= 0 && len(w.symbols) > 0; i = w.symbols[i].next {
		dst = append(dst, w.symbols[i].id)
	}
	return dst
}

func (m *bpe) whole(w *work, word string) (int32, bool) {
	if !m.byteLevel {
		id, ok := m.ids[word]
		return id, ok
	}
	w.buf = appendByteLevel(w.buf[:0], word)
	id, ok := m.ids[string(w.buf)]
	return id, ok
}

// byteSymbols starts one symbol a byte. A byte without a token follows the same rules as in runeSymbols.
func (m *bpe) byteSymbols(w *work, word string) {
	for i := range len(word) {
		if m.byteIDs[word[i]] < 0 {
			w.symbols = w.symbols[:0]
			w.buf = appendByteLevel(w.buf[:0], word)
			m.runeSymbols(w, string(w.buf))
			return
		}
		w.push(m.byteIDs[word[i]])
	}
}

// runeSymbols starts one symbol a character: its token, else its bytes' tokens, else the unknown token, else nothing. As
// in `tokenizers`, an unknown that waits to be fused is written before the next known character but after fallback bytes.
func (m *bpe) runeSymbols(w *work, word string) {
	pending := false
	for i, r := range word {
		size := utf8.RuneLen(r)
		ch := word[i : i+size]
		if id, ok := m.ids[ch]; ok {
			if pending {
				w.push(m.unk)
				pending = false
			}
			w.push(id)
			continue
		}
		if m.byteFallback && m.pushBytes(w, ch) {
			continue
		}
		if m.unk < 0 {
			continue
		}
		if pending && !m.fuseUnk {
			w.push(m.unk)
		}
		pending = true
	}
	if pending {
		w.push(m.unk)
	}
}

func (m *bpe) pushBytes(w *work, ch string) bool {
	for i := range len(ch) {
		if m.fallback[ch[i]] < 0 {
			return false
		}
	}
	for i := range len(ch) {
		w.push(m.fallback[ch[i]])
	}
	return true
}
