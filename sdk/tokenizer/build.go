package tokenizer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
)

// builder collects the parts of a Tokenizer; json.go and gguf.go fill it, finish checks and closes it.
type builder struct {
	vocab          *vocab
	model          model
	normalizer     normalizer
	steps          []step
	decoder        []stageMaker
	added          []AddedToken
	addedAt        map[string]int
	prefix, suffix []int32

	strictIDs bool  // ids of added tokens follow from their order, as in tokenizer.json
	highest   int64 // id of an added token
}

// freeID is the id that `tokenizers` gives to the next added token that is not in the vocabulary.
func (b *builder) freeID() int64 {
	if n := b.vocab.size; len(b.added) == 0 || b.highest < n {
		return n
	}
	return b.highest + 1
}

// addToken enters an added token. Its id is its token's in the vocabulary or, outside it, one that is free. A later entry
// for the same text replaces the flags of an earlier one.
func (b *builder) addToken(subject string, a addedEntry, id int64) error {
	if a.Content == "" {
		return nil // as in `tokenizers`, which skips it
	}
	if have := b.vocab.id(a.Content); have >= 0 && int64(have) != id {
		return corrupt(subject, "%q has the id %d and in the vocabulary the id %d", a.Content, id, have)
	}
	_, known := b.addedAt[a.Content]
	if free := b.freeID(); b.vocab.id(a.Content) < 0 && !known && b.strictIDs && id != free {
		// Such a file means other ids to the library it was made with than to a reader of the file.
		return corrupt(subject, "%q has the id %d, but `tokenizers` would give it %d", a.Content, id, free)
	}
	if err := b.vocab.place(subject, a.Content, id); err != nil {
		return err
	}
	b.highest = max(b.highest, id)
	tok := AddedToken{
		ID: int32(id), Content: a.Content, SingleWord: a.SingleWord, LStrip: a.LStrip, RStrip: a.RStrip,
		Normalized: a.Normalized, Special: a.Special,
	}
	if i, ok := b.addedAt[a.Content]; ok {
		if b.added[i].ID != tok.ID {
			return corrupt(subject, "%q has both the id %d and the id %d", a.Content, b.added[i].ID, tok.ID)
		}
		b.added[i] = tok
		return nil
	}
	if b.addedAt == nil {
		b.addedAt = map[string]int{}
	}
	b.addedAt[a.Content] = len(b.added)
	b.added = append(b.added, tok)
	return nil
}

// configTokens enters what tokenizer_config.json's added_tokens_decoder says beyond tokenizer.json, then the special tokens that
// the side files name, as transformers does. Of the latter it leaves out those that the vocabulary does not have: the model has
// no row for them.
func (b *builder) configTokens(cfg *config) error {
	for _, e := range cfg.added {
		subject := configFile + ": added_tokens_decoder." + strconv.FormatInt(e.id, 10)
		if err := b.addToken(subject, e.addedEntry, e.id); err != nil {
			return err
		}
	}
	for _, e := range cfg.named {
		id := b.vocab.id(e.Content)
		if _, known := b.addedAt[e.Content]; known || id < 0 {
			continue
		}
		if err := b.addToken(configFile+": "+e.Content, e, int64(id)); err != nil {
			return err
		}
	}
	return nil
}

// finish closes the Tokenizer.
func (b *builder) finish(cfg *config) (*Tokenizer, error) {
	t := &Tokenizer{
		vocab: b.vocab, model: b.model, cache: newWordCache(), normalizer: b.normalizer, decoder: b.decoder, inText: textStages(b.decoder), prefix: b.prefix, suffix: b.suffix,
		added: b.added, addedIDs: make(map[string]int32, len(b.added)), special: map[int32]bool{},
		raw: newTrie(), normalized: newTrie(), bos: -1,
	}
	t.steps = b.steps
	if m, ok := b.model.(*bpe); ok {
		// A last byteChars step is left to the model, which then works on the text's own bytes.
		n := len(b.steps)
		byteLevel := n > 0 && b.steps[n-1] == step(byteChars{}) && m.prefix == "" && m.suffix == ""
		if byteLevel {
			t.steps = b.steps[:n-1]
		}
		m.prepare(byteLevel)
	}
	specials := map[string]bool{}
	for _, a := range b.added {
		t.addedIDs[a.Content] = a.ID
		specials[a.Content] = specials[a.Content] || a.Special
		if !a.Normalized {
			t.raw.add(a.Content, a)
			continue
		}
		text := a.Content
		if t.normalizer != nil {
			var err error
			if text, err = t.normalizer.normalize(text); err != nil {
				return nil, err
			}
			if text != "" {
				t.vocab.tokens[a.ID] = text // what `tokenizers` 0.23 decodes such a token to
			}
		}
		t.normalized.add(text, a)
	}
	for _, a := range b.added {
		// By text, as in `tokenizers`: a special token whose normalized text is another one is not left out.
		t.special[a.ID] = specials[t.vocab.tokens[a.ID]]
	}
	return t, t.applyConfig(cfg)
}

// digest hashes parts so that no two lists of parts look the same.
func digest(kind string, parts ...[]byte) string {
	h := sha256.New()
	h.Write([]byte("clade tokenizer 1 " + kind + "\n"))
	var n [8]byte
	for _, p := range parts {
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
