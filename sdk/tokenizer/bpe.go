package tokenizer

import (
	"unicode/utf8"
)

// bpe is the byte-pair model: a vocabulary and ranked merges.
type bpe struct {
	*vocab
	merges mergeTable

	prefix string // in front of every character of a word but the first
	suffix string // behind the last character of a word

	unk          int32 // -1: none
	fuseUnk      bool
	byteFallback bool
	ignoreMerges bool
	wholeLines   bool       // ignoreMerges for words that begin with a line end
	fallback     [256]int32 // ids of <0x00>..<0xFF>, -1 where absent; read only with byteFallback

	// byteLevel says that words arrive as raw bytes and that the vocabulary is spelled with byteRunes.
	byteLevel bool
	byteIDs   [256]int32 // id of each byte's character, -1 where absent
}

// prepare fills the tables derived from the vocabulary.
func (m *bpe) prepare(byteLevel bool) {
	m.byteLevel = byteLevel
	for b := range 256 {
		m.byteIDs[b] = m.id(string(byteRunes[b]))
		m.fallback[b] = m.id(byteToken(byte(b)))
	}
}

const hexDigits = "0123456789ABCDEF"

// byteToken is the name of the token that stands for b under byte_fallback.
func byteToken(b byte) string {
	return "<0x" + string(hexDigits[b>>4]) + string(hexDigits[b&15]) + ">"
}

func (m *bpe) encode(dst []int32, w *work, word string) ([]int32, error) {
	if m.ignoreMerges || m.wholeLines && word[0] == '\n' {
		if id, ok := m.whole(w, word); ok {
			return append(dst, id), nil
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
	return dst, nil
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
	plain := m.prefix == "" && m.suffix == ""
	pending := false
	for i, r := range word {
		size := utf8.RuneLen(r)
		ch := word[i : i+size]
		if !plain {
			ch = m.affixed(ch, i == 0, i+size == len(word))
		}
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

// affixed spells a character of a word as the vocabulary does.
func (m *bpe) affixed(ch string, first, last bool) string {
	if !first {
		ch = m.prefix + ch
	}
	if last {
		ch += m.suffix
	}
	return ch
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
