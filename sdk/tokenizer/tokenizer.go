package tokenizer

import (
	"maps"
	"slices"
	"sync"
)

// Tokenizer turns text into ids and back.
type Tokenizer struct {
	vocab      *vocab
	model      model
	cache      *wordCache
	normalizer normalizer // nil: none
	steps      []step
	raw        *trie // added tokens matched in the text as it is
	normalized *trie // added tokens matched in the normalized text
	added      []AddedToken
	addedIDs   map[string]int32
	special    map[int32]bool

	prefix, suffix []int32 // what the post-processor puts around a text
	decoder        []stageMaker
	inText         []inText

	digest       string
	specials     map[string]string // bos_token and so on -> text
	eos          []int32
	bos          int32 // -1: none
	chatTemplate string
	hasTemplate  bool
	toolTemplate string

	works sync.Pool
}

// Encode gives the ids of text. With addSpecial, what the model's post-processor adds (such as a begin token) is there
// too; a text rendered by a chat template already carries it. Added tokens spelled out in text become their ids.
func (t *Tokenizer) Encode(text string, addSpecial bool) ([]int32, error) {
	text = validText(text)
	e := t.newEncoding(len(text))
	defer t.works.Put(e.work)
	if addSpecial {
		e.ids = append(e.ids, t.prefix...)
	}
	if err := t.raw.cut(text, true, e.text, e.token); err != nil {
		return nil, err
	}
	if addSpecial {
		e.ids = append(e.ids, t.suffix...)
	}
	return e.ids, nil
}

// encoding is the state of one Encode call.
type encoding struct {
	t    *Tokenizer
	work *work
	ids  []int32
	feed []yield // feed[i] passes a piece to step i; the last one to the model
}

func (t *Tokenizer) newEncoding(size int) *encoding {
	w, ok := t.works.Get().(*work)
	if !ok {
		w = &work{}
	}
	e := &encoding{t: t, work: w, ids: make([]int32, 0, size/4+len(t.prefix)+len(t.suffix)+1)}
	n := len(t.steps)
	e.feed = make([]yield, n+1)
	e.feed[n] = e.word
	for i := n - 1; i >= 0; i-- {
		st, next := t.steps[i], e.feed[i+1]
		e.feed[i] = func(piece string, first bool) error { return st.pieces(piece, first, next) }
	}
	return e
}

func (e *encoding) text(s string, first bool) error {
	if e.t.normalizer != nil {
		var err error
		if s, err = e.t.normalizer.normalize(s); err != nil {
			return err
		}
	}
	return e.t.normalized.cut(s, first, e.piece, e.token)
}

func (e *encoding) piece(s string, first bool) error {
	if s == "" {
		return nil
	}
	return e.feed[0](s, first)
}

func (e *encoding) word(word string, _ bool) error {
	if ids, ok := e.t.cache.get(word); ok {
		e.ids = append(e.ids, ids...)
		return nil
	}
	n := len(e.ids)
	var err error
	if e.ids, err = e.t.model.encode(e.ids, e.work, word); err != nil {
		return err
	}
	e.t.cache.put(word, e.ids[n:])
	return nil
}

func (e *encoding) token(id int32) error {
	e.ids = append(e.ids, id)
	return nil
}

// Digest is the SHA-256, in hex, of everything the Tokenizer was built from.
func (t *Tokenizer) Digest() string { return t.digest }

// VocabSize is one more than the highest id.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.tokens) }

// Token is the token of an id as the vocabulary spells it (byte-level tokens in GPT-2's characters).
func (t *Tokenizer) Token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(t.vocab.tokens) {
		return "", false
	}
	token := t.vocab.tokens[id]
	if token == "" {
		return "", false
	}
	return token, true
}

// ID is the id of a token as the vocabulary spells it.
func (t *Tokenizer) ID(token string) (int32, bool) {
	if id, ok := t.addedIDs[token]; ok {
		return id, true
	}
	id, ok := t.vocab.ids[token]
	return id, ok
}

// IsSpecial reports whether Decode with skipSpecial leaves id out.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.special[id] }

// AddedTokens are the tokens outside the merges, in the file's order.
func (t *Tokenizer) AddedTokens() []AddedToken { return slices.Clone(t.added) }

// EOS are the ids that end a text by the tokenizer's own files; generation_config.json may name more.
func (t *Tokenizer) EOS() []int32 { return slices.Clone(t.eos) }

// BOS is the id that begins a text.
func (t *Tokenizer) BOS() (int32, bool) { return t.bos, t.bos >= 0 }

// SpecialTokens are the texts that chat templates know as bos_token, eos_token, pad_token, unk_token and so on.
func (t *Tokenizer) SpecialTokens() map[string]string { return maps.Clone(t.specials) }

// ChatTemplate is the model's own template.
func (t *Tokenizer) ChatTemplate() (string, bool) { return t.chatTemplate, t.hasTemplate }

// ToolTemplate is the model's own template of conversations with tools, where it has another one for them.
func (t *Tokenizer) ToolTemplate() (string, bool) { return t.toolTemplate, t.toolTemplate != "" }
