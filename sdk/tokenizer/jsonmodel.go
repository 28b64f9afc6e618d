package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

type modelSpec struct {
	Type                    *string         `json:"type"`
	Dropout                 *float64        `json:"dropout"`
	UnkToken                *string         `json:"unk_token"`
	ContinuingSubwordPrefix *string         `json:"continuing_subword_prefix"`
	EndOfWordSuffix         *string         `json:"end_of_word_suffix"`
	FuseUnk                 bool            `json:"fuse_unk"`
	ByteFallback            bool            `json:"byte_fallback"`
	IgnoreMerges            bool            `json:"ignore_merges"`
	Vocab                   json.RawMessage `json:"vocab"`
	Merges                  json.RawMessage `json:"merges"`
}

// parseModel reads the model section. Files from before 0.9 name no type; what they hold tells it.
func (b *builder) parseModel(raw json.RawMessage) error {
	if absent(raw) {
		return corrupt(at("model"), "is missing")
	}
	var probe struct {
		Type     string          `json:"type"`
		Merges   json.RawMessage `json:"merges"`
		MaxChars *int            `json:"max_input_chars_per_word"`
		Vocab    json.RawMessage `json:"vocab"`
	}
	if err := json.Unmarshal(raw, &probe); err != nil {
		return corrupt(at("model"), "cannot be read: %w", err)
	}
	kind := probe.Type
	if kind == "" {
		switch {
		case probe.Merges != nil:
			kind = "BPE"
		case probe.MaxChars != nil:
			kind = "WordPiece"
		case !absent(probe.Vocab) && probe.Vocab[0] == '[':
			kind = "Unigram"
		default:
			kind = "WordLevel"
		}
	}
	switch kind {
	case "BPE":
		return b.bpe(raw)
	case "Unigram":
		return b.unigram(raw)
	case "WordPiece", "WordLevel":
		return b.words(kind, raw)
	}
	return unsupported(at("model"), "the model type %q is not implemented", kind)
}

func (b *builder) bpe(raw json.RawMessage) error {
	var spec modelSpec
	if err := component("model", raw, &spec); err != nil {
		return err
	}
	if spec.Dropout != nil && *spec.Dropout != 0 {
		return unsupported(at("model.dropout"), "is set, which is not implemented: ids would depend on chance")
	}
	m := &bpe{unk: -1, fuseUnk: spec.FuseUnk, byteFallback: spec.ByteFallback, ignoreMerges: spec.IgnoreMerges}
	if spec.ContinuingSubwordPrefix != nil {
		m.prefix = *spec.ContinuingSubwordPrefix
	}
	if spec.EndOfWordSuffix != nil {
		m.suffix = *spec.EndOfWordSuffix
	}
	var err error
	if m.vocab, err = parseVocab(spec.Vocab); err != nil {
		return err
	}
	pairs, err := mergePairs(spec.Merges)
	if err != nil {
		return err
	}
	if err := m.setMerges(pairs, at("model.merges")); err != nil {
		return err
	}
	if spec.UnkToken != nil {
		if m.unk = m.id(*spec.UnkToken); m.unk < 0 {
			return corrupt(at("model.unk_token"), "%q is not in the vocabulary", *spec.UnkToken)
		}
	}
	b.vocab, b.model = m.vocab, m
	return nil
}

// words reads WordPiece and WordLevel.
func (b *builder) words(kind string, raw json.RawMessage) error {
	spec := struct {
		typed
		UnkToken string          `json:"unk_token"`
		Prefix   string          `json:"continuing_subword_prefix"`
		MaxChars int             `json:"max_input_chars_per_word"`
		Vocab    json.RawMessage `json:"vocab"`
	}{Prefix: "##", MaxChars: 100}
	if err := component("model", raw, &spec); err != nil {
		return err
	}
	var err error
	if b.vocab, err = parseVocab(spec.Vocab); err != nil {
		return err
	}
	unk := b.vocab.id(spec.UnkToken)
	if kind == "WordLevel" {
		b.model = wordLevel{b.vocab, unk}
		return nil
	}
	if spec.MaxChars < 0 {
		return corrupt(at("model.max_input_chars_per_word"), "is %d", spec.MaxChars)
	}
	b.model = newWordPiece(b.vocab, spec.Prefix, spec.MaxChars, unk)
	return nil
}

func (b *builder) unigram(raw json.RawMessage) error {
	var spec struct {
		typed
		UnkID        *int64          `json:"unk_id"`
		ByteFallback bool            `json:"byte_fallback"`
		Vocab        json.RawMessage `json:"vocab"`
	}
	if err := component("model", raw, &spec); err != nil {
		return err
	}
	v, scores, err := scoredVocab(spec.Vocab)
	if err != nil {
		return err
	}
	unk := int32(-1)
	if spec.UnkID != nil {
		if *spec.UnkID < 0 || *spec.UnkID >= int64(len(scores)) {
			return corrupt(at("model.unk_id"), "the id %d has no token", *spec.UnkID)
		}
		unk = int32(*spec.UnkID)
	}
	b.vocab, b.model = v, newUnigram(v, scores, unk, spec.ByteFallback, at("model.unk_id"))
	return nil
}

// parseVocab reads the object token -> id by hand: a map would hide a token that is there twice.
func parseVocab(raw json.RawMessage) (*vocab, error) {
	const path = "model.vocab"
	c := cursor{b: raw}
	if !c.take('{') {
		return nil, corrupt(at(path), "is not an object")
	}
	v := newVocab(len(raw) / 20)
	for n := 0; !c.take('}'); n++ {
		if n > 0 {
			c.take(',')
		}
		token, err := c.string()
		if err != nil {
			return nil, corrupt(at(path), "%w", err)
		}
		c.take(':')
		id, err := c.int()
		if err != nil {
			return nil, corrupt(at(path), "the id of %q: %w", token, err)
		}
		if err := v.set(at(path), token, id); err != nil {
			return nil, err
		}
	}
	if len(v.ids) == 0 {
		return nil, corrupt(at(path), "is empty")
	}
	return v, nil
}

// scoredVocab reads Unigram's list of [token, score]. A text may be there twice, as in `tokenizers`.
func scoredVocab(raw json.RawMessage) (*vocab, []float64, error) {
	const path = "model.vocab"
	c := cursor{b: raw}
	if !c.take('[') {
		return nil, nil, corrupt(at(path), "is not a list of tokens with scores")
	}
	v, scores := newVocab(len(raw)/24), make([]float64, 0, len(raw)/24)
	for n := 0; !c.take(']'); n++ {
		subject := at(path + "[" + strconv.Itoa(n) + "]")
		if n > 0 {
			c.take(',')
		}
		if !c.take('[') {
			return nil, nil, corrupt(subject, "is not a token with a score")
		}
		token, err := c.string()
		if err != nil {
			return nil, nil, corrupt(subject, "%w", err)
		}
		c.take(',')
		score, err := c.float()
		if err != nil || !c.take(']') {
			return nil, nil, corrupt(subject, "%q has no score", token)
		}
		if err := v.place(subject, token, int64(n)); err != nil {
			return nil, nil, err
		}
		v.ids[token] = int32(n)
		scores = append(scores, score)
	}
	if len(scores) == 0 {
		return nil, nil, corrupt(at(path), "is empty")
	}
	v.size = int64(len(scores))
	return v, scores, nil
}

// mergePairs reads merges as "a b" strings or as pairs.
func mergePairs(raw json.RawMessage) ([][2]string, error) {
	const path = "model.merges"
	c := cursor{b: raw}
	if !c.take('[') {
		return nil, corrupt(at(path), "is not a list")
	}
	var pairs [][2]string
	for n := 0; !c.take(']'); n++ {
		if n > 0 {
			c.take(',')
		}
		subject := func() string { return at(path + "[" + strconv.Itoa(n) + "]") }
		if n >= maxMerges {
			return nil, corrupt(subject(), "there are more merges than the limit of %d", maxMerges)
		}
		if c.take('[') {
			a, err := c.string()
			if err != nil {
				return nil, corrupt(subject(), "%w", err)
			}
			c.take(',')
			b, err := c.string()
			if err != nil || !c.take(']') {
				return nil, corrupt(subject(), "is not a pair of tokens")
			}
			pairs = append(pairs, [2]string{a, b})
			continue
		}
		line, err := c.string()
		if err != nil {
			return nil, corrupt(subject(), "%w", err)
		}
		if strings.HasPrefix(line, "#version") {
			continue
		}
		pair, err := splitMerge(line)
		if err != nil {
			return nil, corrupt(subject(), "%w", err)
		}
		pairs = append(pairs, pair)
	}
	return pairs, nil
}

func splitMerge(line string) ([2]string, error) {
	a, b, ok := strings.Cut(line, " ")
	if !ok || strings.Contains(b, " ") {
		return [2]string{}, fmt.Errorf("%q is not two tokens with one space between them", line)
	}
	return [2]string{a, b}, nil
}

// setMerges ranks the pairs by their order. A pair that is there twice takes the later rank, as in `tokenizers`. Of the
// right token, the prefix that marks the inside of a word does not go into the result.
func (m *bpe) setMerges(pairs [][2]string, subject string) error {
	m.merges = newMergeTable(len(pairs))
	buf := make([]byte, 0, 64)
	for rank, p := range pairs {
		a, b := m.id(p[0]), m.id(p[1])
		buf = append(append(buf[:0], p[0]...), p[1][min(len(m.prefix), len(p[1])):]...)
		id, ok := m.ids[string(buf)]
		if a < 0 || b < 0 || !ok {
			missing := p[0]
			switch {
			case a < 0:
			case b < 0:
				missing = p[1]
			default:
				missing = string(buf)
			}
			return corrupt(fmt.Sprintf("%s[%d]", subject, rank), "%q with %q: %q is not in the vocabulary", p[0], p[1], missing)
		}
		m.merges.put(a, b, merge{int32(rank), id})
	}
	return nil
}
