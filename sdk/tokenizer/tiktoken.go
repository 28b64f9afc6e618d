package tokenizer

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
)

const tiktokenSubject = "tiktoken ranks"

// FromTiktoken builds a Tokenizer from the ranks of a tiktoken vocabulary, a line "base64 rank" for each token, as Whisper's
// files have them. special are the special tokens, whose ids follow those of the ranks in order. Words are GPT-2's.
func FromTiktoken(ranks []byte, special []string) (*Tokenizer, error) {
	if len(ranks) > maxJSONBytes {
		return nil, corrupt(tiktokenSubject, "are %d bytes, more than the limit of %d", len(ranks), maxJSONBytes)
	}
	v, err := tiktokenVocab(ranks)
	if err != nil {
		return nil, err
	}
	m := &bpe{vocab: v, unk: -1, ignoreMerges: true, merges: rankedMerges(v)}
	b := &builder{
		vocab: v, model: m, steps: []step{scanStep{scanGPT2}, byteChars{}},
		decoder: []stageMaker{func() stage { return &joinBytes{} }},
	}
	digests := [][]byte{ranks}
	for i, text := range special {
		if text == "" {
			return nil, corrupt(fmt.Sprintf("%s: special[%d]", tiktokenSubject, i), "is empty")
		}
		id := v.size + int64(i)
		if err := b.addToken(fmt.Sprintf("%s: special[%d]", tiktokenSubject, i), addedEntry{Content: text, Special: true}, id); err != nil {
			return nil, err
		}
		digests = append(digests, []byte(text))
	}
	t, err := b.finish(&config{specials: map[string]string{}})
	if err != nil {
		return nil, err
	}
	t.digest = digest("tiktoken", digests...)
	return t, nil
}

func tiktokenVocab(ranks []byte) (*vocab, error) {
	v := newVocab(len(ranks) / 16)
	n := 0
	for line := range bytes.Lines(ranks) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		subject := tiktokenSubject + ": line " + strconv.Itoa(n)
		word, number, _ := bytes.Cut(line, []byte(" "))
		text, err := base64.StdEncoding.DecodeString(string(word))
		if err != nil || len(text) == 0 {
			return nil, corrupt(subject, "%q is not a token in base64", word)
		}
		id, err := strconv.ParseInt(string(number), 10, 64)
		if err != nil {
			return nil, corrupt(subject, "%q is not a rank", number)
		}
		if err := v.set(subject, string(appendByteLevel(nil, string(text))), id); err != nil {
			return nil, err
		}
	}
	if n == 0 || int64(len(v.tokens)) != v.size {
		return nil, corrupt(tiktokenSubject, "have %d tokens for the ids up to %d", v.size, len(v.tokens)-1)
	}
	return v, nil
}

// rankedMerges are all pairs of tokens that make a token; its id is the rank.
func rankedMerges(v *vocab) mergeTable {
	return joinedPairs(v, func(id int) (rank int32, ok bool) { return int32(id), true })
}

// joinedPairs are all pairs of tokens that make a token which rank admits.
func joinedPairs(v *vocab, rank func(id int) (int32, bool)) mergeTable {
	type pair struct {
		a, b int32
		m    merge
	}
	pairs := make([]pair, 0, 4*len(v.ids))
	for id, token := range v.tokens {
		r, ok := rank(id)
		if !ok {
			continue
		}
		for i := range token {
			if i == 0 {
				continue
			}
			a, ok := v.ids[token[:i]]
			if !ok {
				continue
			}
			if b, ok := v.ids[token[i:]]; ok {
				pairs = append(pairs, pair{a, b, merge{r, int32(id)}})
			}
		}
	}
	t := newMergeTable(len(pairs))
	for _, p := range pairs {
		t.put(p.a, p.b, p.m)
	}
	return t
}
