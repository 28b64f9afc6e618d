package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The tokenizer models of GGUF beside byte-level BPE. What each does with a text is llama.cpp's, which reads the same files.

const spmSpace = "▁"

// spm is "llama": SentencePiece's BPE, where of two neighbours the pair that makes the token with the best score is joined
// first, leftmost among equals. It is BPE whose ranks are the order of scores.
func (v *GGUFVocab) spm(b *builder) error {
	m, err := v.vocabulary()
	if err != nil {
		return err
	}
	if len(v.Scores) != len(v.Tokens) {
		return corrupt(ggufKey("scores"), "has %d scores for %d tokens", len(v.Scores), len(v.Tokens))
	}
	bp := &bpe{vocab: m, unk: -1, byteFallback: true}
	if v.UNK >= 0 && m.has(v.UNK) {
		bp.unk = int32(v.UNK)
	}
	bp.merges = v.scoredMerges(m)
	b.vocab, b.model = m, bp
	return v.sentencePiece(b)
}

// sentencePiece is the spelling of spaces, and back.
func (v *GGUFVocab) sentencePiece(b *builder) error {
	var ns normalizers
	prefixed := choose(v.AddSpacePrefix, v.Model == "llama")
	if prefixed {
		ns = append(ns, prepend(spmSpace))
	}
	b.normalizer = append(ns, replace{find: literal(" "), content: spmSpace})
	b.decoder = sentencePieceDecoder(prefixed)
	return nil
}

func sentencePieceDecoder(prefixed bool) []stageMaker {
	makers := []stageMaker{
		func() stage { return replaceEach{spmSpace, " "} },
		func() stage { return &fallbackBytes{} },
	}
	if prefixed {
		makers = append(makers, func() stage { return &stripJoined{strip: strip{c: ' ', start: 1}} })
	}
	return makers
}

// scoredMerges finds, for each token, the pairs of tokens that make it.
func (v *GGUFVocab) scoredMerges(m *vocab) mergeTable {
	order := slices.Clone(v.Scores)
	slices.SortFunc(order, func(a, b float64) int { return cmp.Compare(b, a) })
	order = slices.Compact(order)
	rankOf := make(map[float64]int32, len(order))
	for rank, score := range order {
		rankOf[score] = int32(rank)
	}
	return joinedPairs(m, func(id int) (int32, bool) {
		// Control tokens are cut out of the text before, and bytes are not text.
		return rankOf[v.Scores[id]], v.kind(id) != typeControl && v.kind(id) != typeByte
	})
}

func (v *GGUFVocab) kind(id int) int64 {
	if id >= len(v.Types) {
		return typeNormal
	}
	return v.Types[id]
}

// wpm is "bert": WordPiece whose words begin with ▁ and go on without a prefix.
func (v *GGUFVocab) wpm(b *builder) error {
	m, err := v.vocabulary()
	if err != nil {
		return err
	}
	if v.UNK < 0 || !m.has(v.UNK) {
		return corrupt(ggufKey("unknown_token_id"), "names no token, which a WordPiece vocabulary needs")
	}
	b.vocab, b.model = m, newWordPiece(m, "", maxTokenBytes, int32(v.UNK))
	lower := choose(v.Lowercase, true)
	b.normalizer = bertNormalizer(true, true, choose(v.StripAccents, lower), lower)
	b.steps = append(slices.Clone(plainSteps["BertPreTokenizer"]), wordStart{})
	b.decoder = []stageMaker{
		func() stage { return replaceEach{spmSpace, " "} },
		func() stage { return &stripJoined{strip: strip{c: ' ', start: 1}} },
	}
	return nil
}

// wordStart puts ▁ in front of a word.
type wordStart struct{}

func (wordStart) pieces(s string, first bool, yield yield) error { return yield(spmSpace+s, first) }

// ugm is "t5": Unigram with SentencePiece's own normalization.
func (v *GGUFVocab) ugm(b *builder) error {
	m, err := v.vocabulary()
	if err != nil {
		return err
	}
	if len(v.Scores) != len(v.Tokens) {
		return corrupt(ggufKey("scores"), "has %d scores for %d tokens", len(v.Scores), len(v.Tokens))
	}
	if v.UNK < 0 || !m.has(v.UNK) {
		return corrupt(ggufKey("unknown_token_id"), "names no token, which a Unigram vocabulary needs")
	}
	n := &spmNormalizer{prefix: choose(v.AddSpacePrefix, false), merge: choose(v.RemoveExtraSpaces, false)}
	if len(v.Charsmap) > 0 {
		if n.table, err = newPrecompiled(ggufKey("precompiled_charsmap"), v.Charsmap); err != nil {
			return err
		}
	}
	b.normalizer = n
	b.vocab, b.model = m, v.unigram(m)
	b.decoder = []stageMaker{func() stage { return replaceEach{spmSpace, " "} }}
	if n.prefix || n.merge {
		b.decoder = append(b.decoder, func() stage { return &stripJoined{strip: strip{c: ' ', start: 1}} })
	}
	return nil
}

// unigram leaves out tokens that no text spells.
func (v *GGUFVocab) unigram(m *vocab) *unigram {
	u := &unigram{vocab: m, tree: newPrefixTree(len(v.Tokens)), scores: v.Scores, unk: int32(v.UNK), subject: ggufKey("unknown_token_id")}
	worst, found := 0.0, false
	for id, token := range m.tokens {
		switch v.kind(id) {
		case typeNormal:
			if !found || v.Scores[id] < worst {
				worst, found = v.Scores[id], true
			}
			u.tree.add(token, int32(id))
		case typeUnused:
			u.tree.add(token, int32(id))
		}
	}
	u.unkScore = float64(float32(worst) - unkPenalty) // llama.cpp keeps scores in 32 bits; ties depend on it
	return u
}

// spmNormalizer is SentencePiece's: the longest entry of the table at each place, then spaces.
type spmNormalizer struct {
	table         *precompiled
	prefix, merge bool
}

func (n *spmNormalizer) normalize(s string) (string, error) {
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	inWord, prefixed := false, false
	for at := 0; at < len(s); {
		width := runeWidth(s, at)
		to := s[at : at+width]
		if n.table != nil {
			n.table.prefixes(s[at:], func(end int, replacement string) bool {
				to, width = replacement, end
				return true
			})
		}
		for i := range len(to) {
			if to[i] == ' ' {
				inWord = false
				if !n.merge {
					b.WriteString(spmSpace)
				}
				continue
			}
			if !inWord {
				inWord = true
				if n.prefix && !prefixed || n.merge {
					b.WriteString(spmSpace)
					prefixed = true
				}
			}
			b.WriteByte(to[i])
		}
		at += width
	}
	return b.String(), nil
}

// vocabulary reads the tokens.
func (v *GGUFVocab) vocabulary() (*vocab, error) {
	if len(v.Tokens) == 0 || len(v.Tokens) > maxVocab {
		return nil, corrupt(ggufKey("tokens"), "has %d tokens, want 1 to %d", len(v.Tokens), maxVocab)
	}
	if len(v.Types) != 0 && len(v.Types) != len(v.Tokens) {
		return nil, corrupt(ggufKey("token_type"), "has %d entries for %d tokens", len(v.Types), len(v.Tokens))
	}
	m := newVocab(len(v.Tokens))
	for id, token := range v.Tokens {
		if token = validText(token); token == "" {
			continue // converters write "" for an id without a token
		}
		if err := m.set(fmt.Sprintf("%s[%d]", ggufKey("tokens"), id), token, int64(id)); err != nil {
			return nil, err
		}
	}
	if len(m.tokens) < len(v.Tokens) {
		m.tokens = append(m.tokens, make([]string, len(v.Tokens)-len(m.tokens))...)
	}
	return m, nil
}
